# attack: makes a file that claims a terabyte
# family: exhaustion
# walls: rlimits
# limits: --disk-mb 16
# outcome: completed|disk_full
# without: escaped
from attack import *
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = os.open("sparse", os.O_CREAT | os.O_RDWR)
judge([("truncate", lambda: os.ftruncate(file, 1 << 40) or 1), ("write at the end", lambda: os.pwrite(file, b"x", 1 << 40)), ("allocate", lambda: os.posix_fallocate(file, 0, 1 << 40) or 1)])
