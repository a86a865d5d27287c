# attack: makes message queues, fanotify groups and secret memory
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

judge([
    ("mq_open", lambda: call(240, ctypes.c_char_p(b"palisade"), os.O_CREAT | os.O_RDWR, 0o600, None)),
    ("fanotify_init", lambda: call(300, 0x200, 0)),
    ("memfd_secret", lambda: call(447, 0)),
    ("kcmp", lambda: call(312, 1, 1, 0, 0, 0)),
    ("lsm_list_modules", lambda: call(461, None, None, 0)),
])
