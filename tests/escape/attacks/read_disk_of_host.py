# attack: asks file systems for the name, label and layout of the host's disk
# family: file reads
# walls: seccomp
# without: escaped
from attack import *
import fcntl
import struct

REQUESTS = {
    "FS_IOC_GETFSUUID": 0x80111500,
    "FS_IOC_GETFSSYSFSPATH": 0x80811501,
    "EXT4_IOC_GETFSUUID": 0x8008662C,
    "FS_IOC_GETFSLABEL": 0x81009431,
    "FS_IOC_GETFSMAP": 0xC0C0583B,
    "FS_IOC_FIEMAP": 0xC020660B,
    "FS_IOC_GETVERSION": 0x80087601,
    "FS_IOC_GETFLAGS": 0x80086601,
    "FIGETBSZ": 0x2,
    "FIBMAP": 0x1,
}


def ask(request):
    with open("/usr/bin/env", "rb") as program:
        # The extents of a whole file, one of them told; others read what they need of it.
        fiemap = struct.pack("QQIIII", 0, 1 << 62, 0, 0, 1, 0)
        return fcntl.ioctl(program, request, fiemap + bytes(400))


seen = {name: attempt(lambda: ask(request)) for name, request in REQUESTS.items()}
told = sorted(name for name, answer in seen.items() if answer != "ENOTTY")
if told:
    escaped("told: %s" % told)
held(" ".join(sorted(seen)))
