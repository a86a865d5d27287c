# attack: measures itself and others with perf_event_open
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

block = ctypes.create_string_buffer(128)
ctypes.memmove(block, (ctypes.c_uint * 4)(1, 128, 0, 0), 16)
judge([("software counter", lambda: call(298, block, 0, -1, -1, 0)), ("nonsense", lambda: call(298, None, 0, -1, -1, 1 << 20))])
