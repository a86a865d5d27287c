# attack: looks for an inherited directory descriptor that leads to the host's root
# family: file reads
# walls: descriptors, landlock
# without: escaped
from attack import *

seen = []
for number in range(1024):
    result = attempt(lambda: os.open(HOST["secret"].lstrip("/"), os.O_RDONLY, dir_fd=number))
    if not isinstance(result, str):
        escaped("descriptor %d leads out" % number)
    if result not in seen:
        seen.append(result)
held("1024 numbers tried: " + " ".join(seen))
