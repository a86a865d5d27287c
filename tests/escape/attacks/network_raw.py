# attack: opens raw and packet sockets, first as it is, then in a nested user namespace
# family: network
# walls: seccomp
# without: escaped
from attack import *
import socket

kinds = [("raw", 2, 3, 255), ("raw6", 10, 3, 255), ("packet", 17, 3, 0x300), ("packet datagram", 17, 2, 0x300), ("ping", 2, 3, 1)]
first = [(label, lambda f=f, t=t, p=p: socket.socket(f, t, p).fileno()) for label, f, t, p in kinds]
for label, work in first:
    if not isinstance(attempt(work), str):
        escaped(label)
inside = outside()
judge([("unshare %s, %s" % (inside, label), work) for label, work in first])
