# attack: changes the machine's clock (with values that no kernel takes)
# family: deception
# walls: seccomp
# without: differs
from attack import *

bad = (ctypes.c_long * 2)(-1, -1)
judge([
    ("clock_settime", lambda: call(227, 99, bad)),
    ("settimeofday", lambda: call(164, bad, None)),
    ("adjtimex", lambda: call(159, ctypes.create_string_buffer(208))),
    ("clock_adjtime", lambda: call(305, 99, ctypes.create_string_buffer(208))),
])
