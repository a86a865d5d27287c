# attack: opens sockets of rare families, whose code is large and seldom looked at
# family: network
# walls: seccomp
# without: differs
from attack import *
import socket

families = {"vsock": 40, "alg": 38, "bluetooth": 31, "can": 29, "tipc": 30, "kcm": 41, "rds": 21, "x25": 9, "ax25": 3, "smc": 43, "xdp": 44, "qipcrtr": 42, "phonet": 35, "nfc": 39}
judge([(label, lambda f=f, t=t: socket.socket(f, t).fileno()) for label, f in families.items() for t in (1, 2, 5)])
