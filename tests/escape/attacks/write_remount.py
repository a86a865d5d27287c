# attack: makes the read-only root and /usr writable again in a nested user namespace
# family: writes
# walls: seccomp, landlock
# without: differs
from attack import *

MS_REMOUNT, MS_BIND = 32, 4096
inside = outside()
tries = [(p, call(MOUNT, ctypes.c_char_p(b"none"), ctypes.c_char_p(p.encode()), None, MS_REMOUNT | MS_BIND, None)) for p in ("/", "/usr", "/proc/sys")]
if any(result == 0 for _, result in tries):
    escaped("remounted %r" % tries)
held("unshare %s, remount %s" % (inside, ", ".join("%s %s" % pair for pair in tries)))
