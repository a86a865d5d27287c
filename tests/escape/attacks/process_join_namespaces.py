# attack: joins the namespaces of itself, of process 1 and of the parent with setns
# family: process
# walls: seccomp
# without: differs
from attack import *


def join(path):
    return call(SETNS, os.open(path, os.O_RDONLY), 0)


names = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
judge([("%s of %s" % (n, w), lambda n=n, w=w: join("/proc/%s/ns/%s" % (w, n))) for w in ("self", "1") for n in names])
