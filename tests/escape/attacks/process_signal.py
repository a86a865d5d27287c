# attack: signals a process of the host by number, by descriptor, as a group, and the own parent from outside
# family: process
# walls: pid, landlock
# without: never: a procfs cannot be mounted without the process namespace, so no wall is built
from attack import *
import signal

victim = HOST["victim"]
judge([
    ("kill", lambda: os.kill(victim, 0) or 1),
    ("killpg", lambda: os.killpg(victim, 0) or 1),
    ("pidfd", lambda: os.pidfd_open(victim)),
    ("queue", lambda: os.strerror(0) if call(129, victim, 0, None) == 0 else "ESRCH"),
    ("parent of 1", lambda: os.kill(0x7FFFFFFF, signal.SIGKILL) or 1),
])
