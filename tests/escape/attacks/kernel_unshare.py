# attack: makes a namespace of each kind, the door to most of the kernel
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

kinds = {"user": CLONE_NEWUSER, "mount": CLONE_NEWNS, "pid": CLONE_NEWPID, "network": CLONE_NEWNET, "ipc": CLONE_NEWIPC,
         "uts": CLONE_NEWUTS, "cgroup": CLONE_NEWCGROUP, "time": CLONE_NEWTIME, "user with high bits": CLONE_NEWUSER | 1 << 40}
judge([(label, lambda f=f: call(UNSHARE, f)) for label, f in kinds.items()])
