# attack: opens the limits of its control groups and the release agent for writing
# family: kernel surface
# walls: root, landlock
# without: differs
from attack import *

files = ["memory/release_agent", "pids/pids.max", "memory/cgroup.procs", "unified/cgroup.procs", "cgroup.procs", "cgroup.subtree_control"]
judge([(f, lambda p=p: os.open(p, os.O_WRONLY)) for f in files for p in places("/sys/fs/cgroup/" + f)])
