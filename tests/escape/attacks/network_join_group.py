# attack: joins groups, of which the kernel tells the network after the program has ended, when it may be another's
# family: network
# walls: seccomp
# without: escaped
from attack import *
import socket
import struct

FOUR, SIX = socket.inet_aton("239.1.2.3"), socket.inet_pton(socket.AF_INET6, "ff02::1:9")
HERE, LOOPBACK = socket.inet_aton("127.0.0.1"), 1
IP_ADD_SOURCE_MEMBERSHIP, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP = 39, 42, 46


def address(family):
    """The long form of a group's address, after the number of the interface."""
    if family == socket.AF_INET:
        return struct.pack("HH4s120x", family, 0, FOUR)
    return struct.pack("HHI16sI100x", family, 0, 0, SIX, LOOPBACK)


def join(family, option, content):
    level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.setsockopt(level, option, content)


seen = []
for family, own in ((socket.AF_INET, FOUR + HERE), (socket.AF_INET6, SIX + struct.pack("i", LOOPBACK))):
    plain = socket.IP_ADD_MEMBERSHIP if family == socket.AF_INET else socket.IPV6_JOIN_GROUP
    group = struct.pack("Q", LOOPBACK) + address(family)
    seen.append(attempt(lambda: join(family, plain, own)))
    seen.append(attempt(lambda: join(family, MCAST_JOIN_GROUP, group)))
    seen.append(attempt(lambda: join(family, MCAST_JOIN_SOURCE_GROUP, group + address(family))))
seen.append(attempt(lambda: join(socket.AF_INET, IP_ADD_SOURCE_MEMBERSHIP, FOUR + HERE + HERE)))
if any(word != "ENOPROTOOPT" for word in seen):
    escaped("joined: %s" % seen)
held(" ".join(str(word) for word in seen))
