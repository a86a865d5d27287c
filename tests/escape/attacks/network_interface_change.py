# attack: gives the loopback interface another address and takes it down
# family: network
# walls: seccomp
# without: differs
from attack import *
import fcntl
import socket
import struct

SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916


def change(request, content):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        fcntl.ioctl(way, request, struct.pack("16s24s", b"lo", content))
        return request


tries = [("flags", lambda: change(SIOCSIFFLAGS, b"\0")), ("address", lambda: change(SIOCSIFADDR, struct.pack("HH4s", 2, 0, b"\x7f\x09\x09\x09")))]
before = [attempt(work) for _, work in tries]
inside = outside()
after = [attempt(work) for _, work in tries]
if any(not isinstance(result, str) for result in before):
    escaped("changed %r" % before)
held("flags %s, address %s; after unshare %s: %s" % (*before, inside, after))
