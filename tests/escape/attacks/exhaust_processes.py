# attack: a fork bomb cut to forty processes, with sixteen allowed
# family: exhaustion
# walls: cgroup, rlimits
# limits: --processes 16 --timeout 10s
# without: escaped
from attack import *
import signal
import time

children = []
for _ in range(40):
    result = attempt(os.fork)
    if isinstance(result, str):
        break
    if result == 0:
        time.sleep(5)
        os._exit(0)
    children.append(result)
for child in children:
    os.kill(child, signal.SIGKILL)
if len(children) >= 40:
    escaped("40 processes at once")
held("%s after fewer than 40" % result)
