# attack: makes directories inside each other until nothing can walk them
# family: exhaustion
# walls: scratch
# limits: --timeout 20s
# outcome: completed
# without: never: the depth does no harm by itself; the end of the run has to survive it
from attack import *

for depth in range(3000):
    result = attempt(lambda: os.mkdir("d") or os.chdir("d"))
    if result:
        held("%s on the way down" % result)
held("3000 deep, and gone with the run: EOK")
