# attack: reads sysfs, which describes the machine and switches it
# family: kernel surface
# walls: root
# without: escaped
from attack import *

judge([(p, lambda p=p: len(os.listdir(p))) for d in ("/sys", "/sys/kernel", "/sys/fs/cgroup") for p in places(d)])
