# attack: computes in short-lived children that nobody waits for, whose time is in no sum
# family: exhaustion
# walls: watchdog
# limits: --timeout 3s --cpus 1
# outcome: timed_out
# without: never: only more time would show it
from attack import *
import signal
import time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if attempt(os.fork) == 0:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        os._exit(0)
    time.sleep(0.02)
