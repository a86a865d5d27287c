# attack: mounts with the newer calls: fsopen, open_tree, move_mount, mount_setattr, fspick
# family: kernel surface
# walls: seccomp, landlock
# without: escaped
from attack import *

inside = outside()
here = ctypes.c_char_p(b"/")
judge([("unshare %s, %s" % (inside, label), work) for label, work in [
    ("fsopen", lambda: call(430, ctypes.c_char_p(b"tmpfs"), 0)),
    ("open_tree", lambda: call(428, -100, here, 1)),
    ("fspick", lambda: call(433, -100, here, 0)),
    ("move_mount", lambda: call(429, -100, here, -100, ctypes.c_char_p(b"/tmp"), 0)),
    ("mount_setattr", lambda: call(442, -100, here, 0, (ctypes.c_ulong * 4)(0, 1, 0, 0), 32)),
]])
