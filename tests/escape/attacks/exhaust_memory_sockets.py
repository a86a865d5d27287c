# attack: fills the buffers of sockets, memory that is in no process, with 300 MB and 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import signal
import socket
import time

children = []
for _ in range(16):
    child = os.fork()
    if child == 0:
        held_open = []
        for _ in range(100):
            pair = attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
            if isinstance(pair, str):
                break
            pair[0].setblocking(False)
            try:
                while True:
                    pair[0].send(b"x" * 65536)
            except OSError:
                pass
            held_open.append(pair)
        time.sleep(1.5)
        os._exit(0 if len(held_open) == 100 else 1)
    children.append(child)
full = sum(os.waitpid(child, 0)[1] == 0 for child in children)
if full == len(children):
    escaped("1600 full sockets, about 300 MB of the kernel's memory")
held("%d of %d were left" % (full, len(children)))
