# attack: fills pipes and makes watches and locks, memory of the kernel that is in no process, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import fcntl
import select
import time

PROCESSES, PIPES = 30, 100


def fill():
    """Pipes that are full, every one watched by every watcher, and a lock on each second byte of a file."""
    watchers = [select.epoll() for _ in range(16)]
    for _ in range(PIPES):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        while not isinstance(attempt(lambda: os.write(writer, b"x" * 4096)), str):
            pass
        for watcher in watchers:
            watcher.register(reader)
    own = os.open("lock-%d" % os.getpid(), os.O_RDWR | os.O_CREAT)
    for number in range(2000):
        fcntl.lockf(own, fcntl.LOCK_EX, 1, number * 2)


children = []
for _ in range(PROCESSES):
    child = os.fork()
    if child == 0:
        fill()
        time.sleep(2)
        os._exit(0)
    children.append(child)
whole = sum(os.waitpid(child, 0)[1] == 0 for child in children)
if whole == PROCESSES:
    escaped("%d full pipes, %d watches, %d locks" % (PROCESSES * PIPES, PROCESSES * PIPES * 16, PROCESSES * 2000))
held("%d of %d were left" % (whole, PROCESSES))
