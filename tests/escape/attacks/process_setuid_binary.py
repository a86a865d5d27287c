# attack: starts every set-uid and file-capability binary that can be seen, to be somebody else for a moment
# family: process
# walls: capabilities
# without: never: no user but one is mapped, so the kernel itself gives such a binary nothing
from attack import *
import subprocess

# 1000, unless the wall has no user namespace.
own = {str(os.getuid()), str(os.getgid())}
if "0" in own:
    escaped("it is root itself")
found = []
for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"):
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if mode & 0o6000 and not os.path.islink(path) and mode & 0o100000:
                found.append(path)
for path in found:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = attempt(lambda: subprocess.Popen([path, "--help"], **quiet))
    if isinstance(child, str):
        continue
    try:
        ids = [line.split()[1:5] for line in open("/proc/%d/status" % child.pid) if line.startswith(("Uid", "Gid"))]
        if any(number not in own for numbers in ids for number in numbers):
            escaped("%s ran as %s" % (path, ids))
    except OSError:
        pass
    child.kill()
    child.wait()
held("%d such binaries ran as nobody else" % len(found))
