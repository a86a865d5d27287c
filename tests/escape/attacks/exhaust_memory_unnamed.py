# attack: hides from who measures memory: a process name that is no text, a leader thread that has ended, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import mmap
import threading
import time

PR_SET_NAME, EXIT, SIZE = 15, 60, 300 << 20
reader, writer = os.pipe()


def fill():
    block = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, SIZE, 4096):
        block[at] = 1
    time.sleep(1)
    os.write(writer, b"x")
    return block


for hide in ("name", "leader"):
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_NAME, b"\xff\xfe", 0, 0, 0)
        if hide == "name":
            fill()
            os._exit(0)
        threading.Thread(target=lambda: (fill(), os._exit(0))).start()
        libc.syscall(EXIT, 0)
    os.waitpid(child, 0)
os.set_blocking(reader, False)
whole = attempt(lambda: len(os.read(reader, 8)))
if whole in (1, 2):
    escaped("%d of 2 held 300 MB" % whole)
held("none held 300 MB: %s" % whole)
