# attack: takes 300 MB of System V shared memory, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

libc.shmat.restype = ctypes.c_void_p
for _ in range(10):
    segment = call(29, 0, 30 << 20, 0o1600)
    if isinstance(segment, str):
        held("shmget %s" % segment)
    place = libc.shmat(segment, None, 0)
    call(31, segment, 0, None)
    ctypes.memset(place, 1, 30 << 20)
time.sleep(0.5)
escaped("holds 300 MB")
