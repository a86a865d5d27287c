# attack: throws a file of the system out of the cache and asks later whether somebody has read it since
# family: process
# walls: seccomp
# without: escaped
from attack import *

RWF_NOWAIT, PATH = 8, "/usr/share/zoneinfo/Pacific/Chatham"
file = os.open(PATH, os.O_RDONLY)


def is_cached():
    return attempt(lambda: os.preadv(file, [bytearray(1)], 0, RWF_NOWAIT))


os.read(file, 4096)
before = is_cached()
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
after = is_cached()
if (before, after) != ("ENOTSUP", "ENOTSUP"):
    escaped("told whether it is cached: before %s, after %s" % (before, after))
held("%s %s" % (before, after))
