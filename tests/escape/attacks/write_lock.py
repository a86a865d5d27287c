# attack: takes a lock on a file of the host that it may only read; the host and other sandboxes then wait for it
# family: writes
# walls: root
# without: never: the system folders are the host's own in every build
from attack import *
import fcntl
import time

file = os.open("/usr/bin/env", os.O_RDONLY)
taken = attempt(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
if taken == "EAGAIN":
    escaped("sees the lock that the host holds")
held("lock %s: it is nobody else's" % (taken or "EOK"))
