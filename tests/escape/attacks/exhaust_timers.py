# attack: makes timers, each of which reserves a pending signal that is counted for the owner on the whole host
# family: exhaustion
# walls: rlimits
# without: escaped
from attack import *

TIMER_CREATE, CLOCK_MONOTONIC, WANTED = 222, 1, 3000
number = ctypes.c_int()
made = 0
while made < WANTED:
    answer = call(TIMER_CREATE, CLOCK_MONOTONIC, None, ctypes.byref(number))
    if isinstance(answer, str):
        held("%d timers, then %s" % (made, answer))
    made += 1
escaped("%d timers" % made)
