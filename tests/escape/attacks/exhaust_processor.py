# attack: eight processes that compute for ever
# family: exhaustion
# walls: watchdog
# limits: --timeout 2s --cpus 1
# outcome: timed_out
# without: never: only more time would show it
from attack import *

for _ in range(3):
    os.fork()
while True:
    pass
