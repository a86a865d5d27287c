# attack: leaves a key in the user's keyring for the next run to find
# family: persistence
# walls: seccomp
# without: differs
from attack import *

text = ctypes.c_char_p
found = call(250, 10, -4, text(b"user"), text(HOST["marker"].encode()), 0)
if not isinstance(found, str):
    escaped("found the key of the last run")
made = call(248, text(b"user"), text(HOST["marker"].encode()), text(b"x"), 1, -4)
held("search %s, add %s" % (found, made if isinstance(made, str) else "made"))
