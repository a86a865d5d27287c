# attack: sets up io_uring, which does file and network work past the filter
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

block = ctypes.create_string_buffer(256)
judge([("setup", lambda: call(425, 4, block)), ("enter", lambda: call(426, 0, 0, 0, 0, None, 0)), ("register", lambda: call(427, -1, 2, None, 0))])
