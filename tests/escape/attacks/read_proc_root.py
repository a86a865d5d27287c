# attack: walks through /proc/1/root and /proc/1/cwd to a file of the host
# family: file reads
# walls: root, dumpable
# without: escaped
from attack import *

links = ["/proc/1/root", "/proc/1/cwd", "/proc/1/task/1/root"]
judge([(link, lambda p=link + path: len(open(p).read())) for link in links for path in places(HOST["secret"])])
