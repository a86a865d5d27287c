# attack: opens 300 files, with 100 allowed
# family: exhaustion
# walls: rlimits
# limits: --open-files 100
# without: escaped
from attack import *

for count in range(300):
    result = attempt(lambda: os.open("/dev/null", os.O_RDONLY))
    if isinstance(result, str):
        held("%s before 300" % result)
escaped("300 open files")
