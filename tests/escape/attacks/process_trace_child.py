# attack: traces a child of its own, the way to rewrite system calls after the filter has seen them
# family: process
# walls: seccomp
# without: escaped
from attack import *

SEIZE, TRACEME = 0x4206, 0
child = os.fork()
if child == 0:
    import time
    time.sleep(1)
    os._exit(0)
judge([("seize", lambda: call(PTRACE, SEIZE, child, 0, 0)), ("traceme", lambda: call(PTRACE, TRACEME, 0, 0, 0))])
