# attack: opens the server's own binary through /proc/1/exe and /proc/1/map_files (CVE-2019-5736)
# family: file reads
# walls: dumpable
# without: escaped
from attack import *

judge([
    ("exe", lambda: os.open("/proc/1/exe", os.O_RDONLY)),
    ("exe for writing", lambda: os.open("/proc/1/exe", os.O_WRONLY)),
    ("run exe", lambda: os.execv("/proc/1/exe", ["x"])),
    ("map_files", lambda: len(os.listdir("/proc/1/map_files"))),
])
