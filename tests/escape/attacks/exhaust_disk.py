# attack: writes 64 MB over every writable place, with 16 MB allowed
# family: exhaustion
# walls: scratch, rlimits
# limits: --disk-mb 16 --timeout 20s
# without: escaped
from attack import *

piece = b"x" * (1 << 20)


def fill(folder):
    with open(folder + "/filler", "wb", buffering=0) as file:
        for _ in range(16):
            file.write(piece)


seen = []
for folder in ("/tmp", "/dev/shm", "/workspace", "/home/agent"):
    seen.append(attempt(lambda: fill(folder)))
if not any(seen):
    escaped("wrote 64 MB")
held(" ".join(str(word) for word in seen))
