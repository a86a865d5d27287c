# attack: reads the command line that palisade was started with on the host from /proc/1/cmdline
# family: file reads
# walls: dumpable
# without: never: a scrubbed command line has no switch that brings it back
from attack import *

words = open("/proc/1/cmdline", "rb").read().strip(b"\0").split(b"\0")
if len(words) > 1 or b"/" in words[0]:
    escaped("process 1 was started with %d words of the host" % len(words))
held("/proc/1/cmdline is %r" % words)
