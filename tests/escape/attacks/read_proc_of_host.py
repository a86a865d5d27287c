# attack: reads the parts of procfs that describe the host's kernel
# family: file reads
# walls: masks
# without: escaped
from attack import *

names = "cmdline config.gz kallsyms keys key-users timer_list interrupts modules sched_debug latency_stats"
seen = []
for name in names.split():
    result = attempt(lambda: len(open("/proc/" + name, "rb").read()))
    if not isinstance(result, str) and result > 0:
        escaped("/proc/%s has %d bytes" % (name, result))
    seen.append("%s %s" % (name, result))
held(", ".join(seen))
