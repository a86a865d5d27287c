# attack: opens internet sockets of rare protocols (SCTP, MPTCP, UDP-Lite, SMC, L2TP), which load kernel code
# family: network
# walls: seccomp
# without: differs
from attack import *
import socket

rare = [("sctp", 1, 132), ("sctp sequence", 5, 132), ("mptcp", 1, 262), ("udp-lite", 2, 136), ("smc", 1, 256), ("l2tp", 2, 115), ("dccp", 2, 33)]
judge([(label, lambda t=t, p=p: socket.socket(2, t, p).fileno()) for label, t, p in rare])
