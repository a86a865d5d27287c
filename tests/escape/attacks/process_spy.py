# attack: watches a system folder to learn which programs the host and other sandboxes start
# family: process
# walls: root
# without: never: the system folders are the host's own in every build
from attack import *
import time

watch = libc.inotify_init1(0o4000)
added = libc.inotify_add_watch(watch, b"/usr/bin", 0x20)
if watch < 0 or added < 0:
    held("watch %s" % name_of(ctypes.get_errno()))
time.sleep(0.5)
seen = attempt(lambda: os.read(watch, 65536))
if isinstance(seen, bytes):
    escaped("saw the host open a file: %s" % seen[16:].split(b"\0")[0].decode(errors="replace"))
held("nothing seen: %s" % seen)
