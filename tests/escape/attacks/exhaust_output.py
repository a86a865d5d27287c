# attack: floods both output streams
# family: exhaustion
# walls: watchdog
# limits: --output-kb 64 --timeout 10s
# outcome: output_limit
# without: never: the host keeps no more than it has room for, whatever the walls
from attack import *

os.fork()
while True:
    attempt(lambda: os.write(1, b"x" * 65536))
    attempt(lambda: os.write(2, b"y" * 65536))
