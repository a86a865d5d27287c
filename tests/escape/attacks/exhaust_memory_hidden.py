# attack: keeps shared memory by a single mapped page of each piece, so that no mapping shows how much it is, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch, seccomp
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

PIECE, PIECES, PAGE = 16 << 20, 24, 4096
MAP_SHARED, MAP_ANONYMOUS = 1, 0x20
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FAILED = ctypes.c_void_p(-1).value


def hide(flags, source):
    begin = libc.mmap(None, PIECE, 3, flags, source, 0)
    if begin == FAILED:
        return name_of(ctypes.get_errno())
    ctypes.memset(begin, 1, PIECE)
    libc.munmap(begin + PAGE, PIECE - PAGE)
    return "hidden"


zero = os.open("/dev/zero", os.O_RDWR)
seen = []
for number in range(PIECES):
    way = (MAP_SHARED | MAP_ANONYMOUS, -1) if number % 2 else (MAP_SHARED, zero)
    seen.append(hide(*way))
time.sleep(1)
hidden = seen.count("hidden")
if hidden * PIECE > 256 << 20:
    escaped("%d MB that no mapping shows" % (hidden * PIECE >> 20))
held("%d MB: %s" % (hidden * PIECE >> 20, sorted(set(seen))))
