# attack: locks a megabyte of memory against swapping
# family: exhaustion
# walls: rlimits
# without: escaped
from attack import *
import mmap

block = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
judge([("mlock", lambda: call(149, address, 1 << 20)), ("mlockall", lambda: call(151, 3))])
