# attack: kills, stops and floods process 1, then everything with kill(-1)
# family: process
# walls: pid
# without: never: the kernel itself drops such signals to process 1 of a namespace
from attack import *
import signal
import time

for number in range(1, 65):
    if number not in (32, 33):
        attempt(lambda: os.kill(1, number))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
attempt(lambda: os.kill(-1, signal.SIGTERM))
time.sleep(0.2)
state = [line for line in open("/proc/1/status") if line.startswith("State")][0].split()[1]
if state not in "SR":
    escaped("process 1 is in state %s" % state)
held("process 1 lives on")
