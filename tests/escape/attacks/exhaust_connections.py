# attack: connects to itself thousands of times without accepting, which uses up what the whole host has for TCP
# family: exhaustion
# walls: watchdog
# limits: --timeout 20s
# outcome: out_of_memory|completed
# without: escaped
from attack import *
import socket
import time

WANTED = 3000


def connections():
    if not os.path.exists("/proc/net/sockstat"):
        with open("/proc/net/tcp") as lines:
            return sum(1 for _ in lines) - 1
    with open("/proc/net/sockstat") as counts:
        words = next(line for line in counts if line.startswith("TCP:")).split()
    return int(words[words.index("inuse") + 1]) + int(words[words.index("tw") + 1])


listeners = []
for _ in range(40):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    listeners.append(listener)
most = 0
for listener in listeners:
    for _ in range(100):
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        attempt(lambda: client.connect(listener.getsockname()))
        client.close()
    time.sleep(0.02)
    most = max(most, connections())
if most > WANTED:
    escaped("%d connections at once" % most)
held("%d connections at most" % most)
