# attack: reads the environment and the open descriptors of process 1
# family: file reads
# walls: dumpable
# without: escaped
from attack import *

judge([
    ("environ", lambda: len(open("/proc/1/environ", "rb").read())),
    ("fd", lambda: len(os.listdir("/proc/1/fd"))),
    ("fd 3", lambda: os.open("/proc/1/fd/3", os.O_RDWR)),
    ("auxv", lambda: len(open("/proc/1/auxv", "rb").read())),
])
