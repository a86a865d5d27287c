# attack: signals a process of the host by number, by descriptor, as a group and with a value
# family: process
# walls: pid, landlock
# without: never: a procfs cannot be mounted without the process namespace, so no wall is built
from attack import *

victim = HOST["victim"]
judge([
    ("kill", lambda: os.kill(victim, 0) or 1),
    ("killpg", lambda: os.killpg(victim, 0) or 1),
    ("pidfd", lambda: os.pidfd_open(victim)),
    ("queue", lambda: 1 if libc.sigqueue(victim, 0, None) == 0 else name_of(ctypes.get_errno())),
])
