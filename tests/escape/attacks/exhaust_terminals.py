# attack: takes hundreds of terminals from the pool that all of the machine shares
# family: exhaustion
# walls: rlimits
# limits: --open-files 1024
# without: never: the limit is an option of the terminal file system, which no switch lifts
from attack import *

count = 0
while count < 600 and not isinstance(attempt(lambda: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)), str):
    count += 1
if count >= 600:
    escaped("600 terminals of one process")
held("refused before 600")
