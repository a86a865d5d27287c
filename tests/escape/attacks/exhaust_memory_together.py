# attack: twelve processes take 25 MB each in the same instant, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import mmap
import time

ready, go = os.pipe(), os.pipe()
for _ in range(12):
    if os.fork() == 0:
        block = mmap.mmap(-1, 25 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        os.read(go[0], 1)
        for at in range(0, 25 << 20, 4096):
            block[at] = 1
        os.write(ready[1], b"x")
        time.sleep(10)
        os._exit(0)
os.close(ready[1])
os.write(go[1], b"x" * 12)
count = 0
while count < 12 and os.read(ready[0], 1):
    count += 1
time.sleep(0.5)
if count < 12:
    held("%d of 12 were left" % count)
escaped("12 processes hold 300 MB")
