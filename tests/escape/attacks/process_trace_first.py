# attack: attaches a debugger to process 1
# family: process
# walls: seccomp, dumpable
# without: escaped
from attack import *

ATTACH, SEIZE = 16, 0x4206
judge([("seize", lambda: call(PTRACE, SEIZE, 1, 0, 0)), ("attach", lambda: call(PTRACE, ATTACH, 1, 0, 0))])
