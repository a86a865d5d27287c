# attack: talks netlink: routes, firewall, audit, generic
# family: network
# walls: seccomp
# without: escaped
from attack import *
import socket

judge([("protocol %d" % p, lambda p=p: socket.socket(16, 3, p).fileno()) for p in (0, 4, 6, 9, 12, 15, 16)])
