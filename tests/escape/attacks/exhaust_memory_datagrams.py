# attack: fills the buffers of datagram sockets, which version 1 control groups do not count as memory, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import socket
import time

WANTED = 250 << 20


def queued():
    """What waits in this namespace's datagram sockets, as the kernel counts it."""
    with open("/proc/net/udp") as table:
        return sum(int(line.split()[4].split(":")[1], 16) for line in list(table)[1:])


receivers = []
for _ in range(120):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    attempt(lambda: receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for _ in range(100):
            attempt(lambda: sender.sendto(b"x" * 60000, receiver.getsockname()))
    receivers.append(receiver)
# Time for a watch to look.
time.sleep(1)
held_bytes = queued()
if held_bytes > WANTED:
    escaped("%d MB in datagram sockets" % (held_bytes >> 20))
held("%d MB in datagram sockets" % (held_bytes >> 20))
