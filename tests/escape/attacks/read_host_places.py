# attack: lists the places where a host keeps secrets: homes, state, sockets, system settings
# family: file reads
# walls: root
# without: escaped
from attack import *

secret = ["/root", "/var", "/run", "/boot", "/srv", "/opt", "/mnt", "/media", "/lost+found", "/sys", "/home/" + HOST["user"]]
files = ["/etc/shadow", "/etc/machine-id", "/etc/hostname", "/etc/fstab", "/etc/sudoers", "/etc/ssh/sshd_config"]
# A sandbox may have entries of its own there: /mnt/data, a link to its workspace, and an empty /var/tmp.
def is_own(path):
    if path == "/var/tmp":
        return os.listdir(path) == []
    return os.path.islink(path) and os.readlink(path) == "/workspace"


def listed(place):
    names = os.listdir(place)
    foreign = [name for name in names if not is_own(os.path.join(place, name))]
    if not foreign:
        raise FileNotFoundError(errno.ENOENT, "it is empty, or has nothing but its own link", place)
    return len(foreign)


def opened(path):
    descriptor = os.open(path, os.O_RDONLY)
    # Some walls show the sandbox's own name there.
    if path == "/etc/hostname" and os.read(descriptor, 100) == b"palisade\n":
        raise FileNotFoundError(errno.ENOENT, "its own name", path)
    return descriptor


tries = [(d, lambda p=p: listed(p)) for d in secret for p in places(d)]
tries += [(f, lambda p=p: opened(p)) for f in files for p in places(f)]
judge(tries)
