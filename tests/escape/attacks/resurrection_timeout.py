# attack: leaves a daemon and then waits for the clock, so that the end comes from outside
# family: resurrection
# walls: pid
# limits: --timeout 1s
# outcome: timed_out
# without: never: the daemon dies with its process namespace, which every build has
from attack import *
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep-" + HOST["marker"], "61"])
    os._exit(0)
time.sleep(60)
