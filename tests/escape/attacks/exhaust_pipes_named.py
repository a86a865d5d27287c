# attack: fills named pipes, whose descriptors look like those of files, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

PROCESSES, PIPES = 30, 100
children = []
for number in range(PROCESSES):
    child = os.fork()
    if child == 0:
        for pipe in range(PIPES):
            name = "/tmp/pipe-%d-%d" % (number, pipe)
            os.mkfifo(name)
            both = os.open(name, os.O_RDWR | os.O_NONBLOCK)
            while not isinstance(attempt(lambda: os.write(both, b"x" * 4096)), str):
                pass
        time.sleep(2)
        os._exit(0)
    children.append(child)
whole = sum(os.waitpid(child, 0)[1] == 0 for child in children)
if whole == PROCESSES:
    escaped("%d full pipes" % (PROCESSES * PIPES))
held("%d of %d were left" % (whole, PROCESSES))
