# attack: climbs out of the workspace with .. and out of a descriptor of the root
# family: file reads
# walls: root
# without: escaped
from attack import *

up = "../" * 40
top = os.open("/", os.O_PATH)
judge(
    [("up", lambda p=p: len(open(up + p.lstrip("/")).read())) for p in places(HOST["secret"])]
    + [("openat", lambda p=p: os.open(up + p.lstrip("/"), os.O_RDONLY, dir_fd=top)) for p in places(HOST["secret"])]
)
