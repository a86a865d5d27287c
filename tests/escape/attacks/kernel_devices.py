# attack: opens the machine's memory, ports, disks, log, tunnels and virtual machines
# family: kernel surface
# walls: root
# without: differs
from attack import *

names = "mem kmem port kmsg fuse kvm net/tun vda sda nvme0n1 loop-control tty0 console hpet uinput userfaultfd vhost-net".split()
judge([(n, lambda p=p: os.open(p, os.O_RDONLY | os.O_NONBLOCK)) for n in names for p in places("/dev/" + n)])
