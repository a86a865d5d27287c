# attack: calls itself what the host's own look at it would misread
# family: deception
# walls: watchdog
# limits: --timeout 5s
# outcome: completed
# without: never: a name is data, so there is no wall to take away
from attack import *
import time

for title in (b"x) R 1 1 1 0", b"a\nRssAnon: 0 kB", b"\0", b"palisade-jail"):
    libc.prctl(15, ctypes.c_char_p(title), 0, 0, 0)
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
time.sleep(0.3)
held("EOK")
