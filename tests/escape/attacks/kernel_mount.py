# attack: mounts a file system, in a nested user namespace where it can get one
# family: kernel surface
# walls: seccomp, landlock
# without: escaped
from attack import *

os.mkdir("/tmp/here")
inside = outside()
kinds = ("tmpfs", "proc", "sysfs", "overlay", "fuse", "ramfs")
tries = [(k, lambda k=k: call(MOUNT, ctypes.c_char_p(b"none"), ctypes.c_char_p(b"/tmp/here"), ctypes.c_char_p(k.encode()), 0, None)) for k in kinds]
tries.append(("bind", lambda: call(MOUNT, ctypes.c_char_p(b"/usr"), ctypes.c_char_p(b"/tmp/here"), None, 4096, None)))
tries.append(("umount", lambda: call(166, ctypes.c_char_p(b"/proc/sys"), 2)))
judge([("unshare %s, %s" % (inside, label), work) for label, work in tries])
