# attack: asks to be told when files of the system are used, which shows what the host and other sandboxes start
# family: process
# walls: seccomp
# without: escaped
from attack import *
import fcntl

DN_ACCESS, DN_MULTISHOT = 0x1, 0x80000000 - (1 << 32)
seen = []
for path in ("/usr/bin", "/usr/lib", "/"):
    place = os.open(path, os.O_RDONLY)
    seen.append(attempt(lambda: fcntl.fcntl(place, fcntl.F_NOTIFY, DN_ACCESS)))
program = os.open("/usr/bin/env", os.O_RDONLY)
own = os.open("mine", os.O_RDWR | os.O_CREAT)
seen.append(attempt(lambda: fcntl.fcntl(program, fcntl.F_SETLEASE, fcntl.F_RDLCK)))
seen.append(attempt(lambda: fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_WRLCK)))
seen.append(attempt(lambda: fcntl.fcntl(own, fcntl.F_GETLEASE)))
if any(word != "EINVAL" for word in seen):
    escaped("watches: %s" % seen)
held(" ".join(seen))
