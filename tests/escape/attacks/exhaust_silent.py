# attack: closes every descriptor, ignores every signal and sleeps
# family: exhaustion
# walls: watchdog
# limits: --timeout 1s
# outcome: timed_out
# without: never: only more time would show it
from attack import *
import signal
import time

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
os.closerange(0, 1024)
time.sleep(60)
