# attack: takes 300 MB of shared memory, which belongs to no process in particular, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch, seccomp
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed
# without: escaped
from attack import *
import mmap
import time

block = mmap.mmap(-1, 300 << 20)
for at in range(0, 300 << 20, 4096):
    block[at] = 1
time.sleep(0.5)
escaped("holds 300 MB")
