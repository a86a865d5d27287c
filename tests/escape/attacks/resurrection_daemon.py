# attack: leaves a double-forked daemon that ignores signals and holds the output open
# family: resurrection
# walls: pid
# limits: --timeout 20s
# outcome: completed
# without: never: the daemon dies with its process namespace, which every build has
from attack import *
import signal
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (1, 2, 3, 13, 15):
            signal.signal(number, signal.SIG_IGN)
        os.execv("/bin/sleep", ["sleep-" + HOST["marker"], "61"])
    os._exit(0)
time.sleep(0.2)
held("left it: EOK")
