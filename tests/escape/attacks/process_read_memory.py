# attack: reads and writes the memory of process 1 with process_vm_readv and process_vm_writev
# family: process
# walls: seccomp, dumpable
# without: escaped
from attack import *

READ, WRITE = 310, 311
first = attempt(lambda: open("/proc/1/maps").readline().split("-")[0])
start = 0x10000 if first.startswith("E") else int(first, 16)
mine = ctypes.create_string_buffer(64)
local = (ctypes.c_ulong * 2)(ctypes.addressof(mine), 64)
remote = (ctypes.c_ulong * 2)(start, 64)
judge([("read", lambda: call(READ, 1, local, 1, remote, 1, 0)), ("write", lambda: call(WRITE, 1, local, 0, remote, 0, 0))])
