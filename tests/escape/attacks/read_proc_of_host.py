# attack: reads the parts of procfs that describe the host's kernel
# family: file reads
# walls: masks
# without: escaped
from attack import *

names = "cmdline config.gz kallsyms keys key-users timer_list interrupts modules sched_debug latency_stats"


def content(path):
    with open(path, "rb") as file:
        words = file.read()
    if not words:
        raise FileNotFoundError(errno.ENOENT, "it is empty", path)
    return words[:200]


judge([("/proc/" + name, lambda name=name: content("/proc/" + name)) for name in names.split()])
