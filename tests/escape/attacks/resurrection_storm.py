# attack: processes that replace themselves faster than a list of them can be read
# family: resurrection
# walls: pid
# limits: --timeout 1s --processes 64
# outcome: timed_out
# without: never: the storm dies with its process namespace, which every build has
from attack import *

for _ in range(8):
    if attempt(os.fork) == 0:
        os.setsid()
        while True:
            child = attempt(os.fork)
            if not isinstance(child, str) and child > 0:
                os._exit(0)
import time
time.sleep(60)
