# attack: becomes another user or regains capabilities
# family: process
# walls: capabilities
# without: differs
from attack import *

tries = [("setuid", lambda: os.setuid(0) or 1), ("setresuid", lambda: os.setresuid(0, 0, 0) or 1), ("setgid", lambda: os.setgid(0) or 1),
         ("setgroups", lambda: os.setgroups([0]) or 1), ("keepcaps", lambda: 1 if libc.prctl(47, 2, 12, 0, 0) == 0 else name_of(ctypes.get_errno()))]
sets = {line.split(":")[0]: line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")}
seen = ["%s %s" % (label, attempt(work)) for label, work in tries]
if any(word.endswith(" 1") for word in seen) or int(sets["CapEff"], 16):
    escaped("%s %s" % (sets, seen))
held(", ".join(seen) + ", bounding set " + sets["CapBnd"])
