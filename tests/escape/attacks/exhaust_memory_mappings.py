# attack: takes memory page by page in 300,000 mappings, so that who measures it has 300,000 lines to read, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 25s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import mmap
import signal
import time

PROCESSES, MAPPINGS, PAGE = 15, 20000, 4096
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def fill():
    """One mapping, of which every second page is made another kind: the kernel splits it into one for each page."""
    begin = libc.mmap(None, MAPPINGS * PAGE, 3, 0x22, -1, 0)
    for number in range(MAPPINGS):
        ctypes.c_char.from_address(begin + number * PAGE).value = b"x"
        if number % 2:
            libc.mprotect(begin + number * PAGE, PAGE, 1)


children = []
for _ in range(PROCESSES):
    child = os.fork()
    if child == 0:
        fill()
        time.sleep(3)
        os._exit(0)
    children.append(child)
whole = sum(os.waitpid(child, 0)[1] == 0 for child in children)
if whole == PROCESSES:
    escaped("%d MB in %d mappings" % (PROCESSES * MAPPINGS * PAGE >> 20, PROCESSES * MAPPINGS))
held("%d of %d were left" % (whole, PROCESSES))
