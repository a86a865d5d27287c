# attack: sets socket options that reach rare kernel code, tables of the whole host or switches of the whole kernel
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *
import socket
import struct

ONE, NAME = struct.pack("i", 1), b"tls\0"
TCP, UDP, IP, SIX = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_IP, socket.IPPROTO_IPV6
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
# The request for a flow label: any number, made now, shared by all processes; see linux/in6.h.
FLOW_LABEL = struct.pack("=16sIBBHHHI", socket.inet_pton(socket.AF_INET6, "::1"), 0, 0, 255, 1, 6, 6, 0)
OPTIONS = {
    "TCP_ULP": (STREAM, TCP, 31, NAME),
    "TCP_LINGER2": (STREAM, TCP, 8, ONE),
    "TCP_MD5SIG": (STREAM, TCP, 14, bytes(216)),
    "TCP_REPAIR": (STREAM, TCP, 19, ONE),
    "TCP_CONGESTION": (STREAM, TCP, 13, b"reno\0"),
    "UDP_ENCAP": (DATAGRAM, UDP, 100, struct.pack("i", 2)),
    "SO_TXTIME": (DATAGRAM, socket.SOL_SOCKET, 61, struct.pack("ii", 1, 0)),
    "SO_TIMESTAMP": (DATAGRAM, socket.SOL_SOCKET, 29, ONE),
    "SO_ZEROCOPY": (STREAM, socket.SOL_SOCKET, 60, ONE),
    "IP_MINTTL": (STREAM, IP, 21, ONE),
    "IPV6_FLOWLABEL_MGR": (DATAGRAM, SIX, 32, FLOW_LABEL),
}


def option(kind, level, number, content):
    family = socket.AF_INET6 if level == SIX else socket.AF_INET
    with socket.socket(family, kind) as way:
        way.setsockopt(level, number, content)


def read(level, number):
    with socket.socket(socket.AF_INET, STREAM) as way:
        return way.getsockopt(level, number, 64)


seen = {name: attempt(lambda: option(*given)) for name, given in OPTIONS.items()}
seen["SO_NETNS_COOKIE"] = attempt(lambda: read(socket.SOL_SOCKET, 71))
seen["SO_COOKIE"] = attempt(lambda: read(socket.SOL_SOCKET, 57))
seen["TCP_ZEROCOPY_RECEIVE"] = attempt(lambda: read(TCP, 35))
reached = {name: answer for name, answer in seen.items() if answer != "ENOPROTOOPT"}
if reached:
    escaped("the kernel looked at %s" % reached)
held(" ".join(sorted(seen)))
