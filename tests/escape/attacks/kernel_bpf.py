# attack: makes a map and loads a program with bpf
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

block = (ctypes.c_uint * 32)(2, 4, 8, 1)
judge([("map", lambda: call(321, 0, block, 128)), ("program", lambda: call(321, 5, block, 128)), ("nonsense", lambda: call(321, 0, None, 4096))])
