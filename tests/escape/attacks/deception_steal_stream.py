# attack: takes the guest's stream to the host with pidfd_getfd, to forge its messages
# family: deception
# walls: seccomp, dumpable
# without: escaped
from attack import *

GETFD = 438
first = os.pidfd_open(1)
judge([("descriptor %d" % n, lambda n=n: call(GETFD, first, n, 0)) for n in range(3, 9)])
