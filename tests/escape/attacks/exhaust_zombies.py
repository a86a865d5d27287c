# attack: forty dead processes that nobody buries, with sixteen allowed
# family: exhaustion
# walls: cgroup, rlimits
# limits: --processes 16 --timeout 10s
# without: escaped
from attack import *

for count in range(40):
    result = attempt(os.fork)
    if isinstance(result, str):
        held("%s after fewer than 40" % result)
    if result == 0:
        os._exit(0)
escaped("40 zombies at once")
