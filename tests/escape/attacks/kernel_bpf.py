# attack: loads a program into the kernel and makes a map with bpf
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

# A map of one element; where the kernel keeps bpf from ordinary users, a look-up of a missing object tells.
block = (ctypes.c_uint * 32)(2, 4, 8, 1)
bad = call(321, 0, None, 4096)
made = call(321, 0, block, 128)
if not isinstance(made, str):
    escaped("made a map")
if "EPERM" not in (made, bad):
    escaped("bpf answers %s" % bad)
if bad != "EPERM":
    escaped("bpf is there: %s" % bad)
held("map %s, nonsense %s" % (made, bad))
