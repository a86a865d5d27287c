# attack: reads the memory of process 1, a copy of the server's, through /proc
# family: file reads
# walls: dumpable
# without: escaped
from attack import *


def peek():
    start = int(open("/proc/1/maps").readline().split("-")[0], 16)
    with open("/proc/1/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        return len(memory.read(64))


judge([("maps", peek), ("mem", lambda: os.open("/proc/1/mem", os.O_RDONLY)), ("pagemap", lambda: os.open("/proc/1/pagemap", os.O_RDONLY))])
