# attack: looks for a process of the host in /proc
# family: process
# walls: root
# without: escaped
from attack import *

tries = [(top, lambda p="%s/%d/status" % (top, HOST["victim"]): open(p).readline()[:5] and 1) for top in places("/proc")]
others = [n for n in os.listdir("/proc") if n.isdigit() and int(n) not in (1, os.getpid(), os.getppid())]
if others:
    escaped("sees %s" % others)
judge(tries)
