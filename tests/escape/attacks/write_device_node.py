# attack: makes device nodes for the machine's memory and for nothing at all, and opens them
# family: writes
# walls: seccomp
# without: differs
from attack import *


def node(major, minor):
    path = "/tmp/node%d-%d" % (major, minor)
    os.mknod(path, 0o20666, os.makedev(major, minor))
    return os.open(path, os.O_RDONLY)


judge([("1:1", lambda: node(1, 1)), ("0:0", lambda: node(0, 0)), ("254:0", lambda: node(254, 0))])
