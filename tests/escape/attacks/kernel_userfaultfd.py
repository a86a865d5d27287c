# attack: stops the kernel in the middle of a copy with userfaultfd, the way races are won
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

judge([("user mode only", lambda: call(323, 1)), ("all", lambda: call(323, 0)), ("nonsense", lambda: call(323, 1 << 20))])
