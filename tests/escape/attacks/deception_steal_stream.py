# attack: takes the guest's stream to the host with pidfd_getfd, to forge its messages
# family: deception
# walls: seccomp, dumpable
# without: escaped
from attack import *

GETFD = 438
PIDFD_OPEN = 434
first = call(PIDFD_OPEN, 1, 0)
if isinstance(first, str):
    held("pidfd_open %s" % first)
judge([("descriptor %d" % n, lambda n=n: call(GETFD, first, n, 0)) for n in range(3, 9)])
