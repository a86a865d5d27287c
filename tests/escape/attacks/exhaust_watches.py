# attack: takes every inotify instance that the owner of the sandbox has on the host
# family: exhaustion
# walls: rlimits
# without: never: the limit is a setting of the user namespace, which no switch lifts
from attack import *

count = 0
while count < HOST["inotify_instances"] and libc.inotify_init1(0o2000000) >= 0:
    count += 1
if count >= HOST["inotify_instances"] - 8:
    escaped("%d instances: the host's owner has none left" % count)
held("refused after fewer than the owner's allowance")
