# attack: mounts the control groups to lift its limits or to plant a release agent
# family: kernel surface
# walls: seccomp, landlock
# without: escaped
from attack import *

os.mkdir("/tmp/groups")
inside = call(UNSHARE, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP)
judge([("unshare %s, %s" % (inside, k), lambda k=k: call(MOUNT, ctypes.c_char_p(b"none"), ctypes.c_char_p(b"/tmp/groups"), ctypes.c_char_p(k.encode()), 0, None))
       for k in ("cgroup2", "cgroup")])
