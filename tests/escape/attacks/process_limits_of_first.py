# attack: starves process 1 by changing its limits and its priority
# family: process
# walls: seccomp
# without: escaped
from attack import *
import resource

judge([
    ("read", lambda: call(302, 1, resource.RLIMIT_NOFILE, None, ctypes.create_string_buffer(16))),
    ("write", lambda: call(302, 1, resource.RLIMIT_NOFILE, (ctypes.c_ulong * 2)(8, 8), None)),
    ("oom_score_adj", lambda: os.open("/proc/1/oom_score_adj", os.O_WRONLY)),
])
