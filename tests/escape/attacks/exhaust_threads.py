# attack: forty threads, with sixteen allowed
# family: exhaustion
# walls: cgroup, rlimits
# limits: --processes 16 --timeout 10s
# without: escaped
from attack import *
import threading

gate = threading.Event()
for count in range(40):
    try:
        threading.Thread(target=gate.wait, daemon=True).start()
    except RuntimeError:
        held("no thread after fewer than 40")
escaped("40 threads at once")
