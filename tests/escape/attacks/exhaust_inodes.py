# attack: makes a hundred thousand empty files
# family: exhaustion
# walls: scratch
# limits: --disk-mb 16 --timeout 30s
# without: escaped
from attack import *

for number in range(100000):
    made = attempt(lambda: os.close(os.open("/tmp/%d" % number, os.O_CREAT | os.O_WRONLY)))
    if made:
        held("%s before the end" % made)
escaped("100000 files")
