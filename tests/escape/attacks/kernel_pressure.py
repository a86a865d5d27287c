# attack: plants a trigger for the load of the whole machine in /proc/pressure
# family: kernel surface
# walls: masks
# without: escaped
from attack import *


def plant(name):
    return os.write(os.open("/proc/pressure/" + name, os.O_RDWR | os.O_NONBLOCK), b"some 500000 2000000\0")


judge([(name, lambda n=name: plant(n)) for name in ("cpu", "memory", "io")])
