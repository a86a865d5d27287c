# attack: writes 300 MB into memory files that are mapped nowhere, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

piece = b"x" * (1 << 20)
files = []
for number in range(30):
    file = attempt(lambda: os.memfd_create("m%d" % number))
    if isinstance(file, str):
        held("memory file %s" % file)
    files.append(file)
    for _ in range(10):
        written = attempt(lambda: os.write(file, piece))
        if isinstance(written, str):
            held("write %s" % written)
time.sleep(0.5)
escaped("holds 300 MB")
