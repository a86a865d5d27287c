# attack: starts a program with three megabytes of arguments and one of names
# family: exhaustion
# walls: rlimits
# without: never: the kernel itself limits arguments by the stack limit
from attack import *

big = "x" * 131000


def start(count):
    if os.fork() == 0:
        try:
            os.execve("/bin/true", ["true"] + [big] * count, {"A": big})
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.wait()[1])
    return name_of(status) if status else 1


judge([("3 MB", lambda: start(24)), ("16 MB", lambda: start(128))])
