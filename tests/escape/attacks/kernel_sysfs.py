# attack: reads sysfs, which describes the machine and switches it
# family: kernel surface
# walls: root
# without: escaped
from attack import *


def listed(place):
    names = os.listdir(place)
    if not names:
        raise FileNotFoundError(errno.ENOENT, "it is empty", place)
    return len(names)


judge([(p, lambda p=p: listed(p)) for d in ("/sys", "/sys/kernel", "/sys/fs/cgroup") for p in places(d)])
