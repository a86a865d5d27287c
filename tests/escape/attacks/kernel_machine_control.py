# attack: restarts the machine (with a wrong magic number, so that nothing happens), swaps, counts, sets quotas
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

judge([
    ("reboot", lambda: call(169, 1, 2, 3, None)),
    ("swapon", lambda: call(167, ctypes.c_char_p(b"/nonexistent"), 0)),
    ("swapoff", lambda: call(168, ctypes.c_char_p(b"/nonexistent"))),
    ("acct", lambda: call(163, ctypes.c_char_p(b"/nonexistent"))),
    ("quotactl", lambda: call(179, -1, None, 0, None)),
    ("syslog", lambda: call(103, 77, None, 0)),
    ("vhangup", lambda: call(153)),
])
