# attack: leaves its root with chroot and pivot_root
# family: kernel surface
# walls: seccomp, landlock
# without: escaped
from attack import *

inside = outside()
os.mkdir("/tmp/jail")
judge([
    ("unshare %s, chroot" % inside, lambda: call(161, ctypes.c_char_p(b"/tmp/jail"))),
    ("pivot_root", lambda: call(155, ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"/tmp/jail"))),
])
