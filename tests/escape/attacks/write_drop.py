# attack: makes a file in a directory of the host that everybody may write, as /tmp is
# family: writes
# walls: root, landlock
# without: escaped
from attack import *

judge([("create", lambda p=p: os.open(p, os.O_CREAT | os.O_WRONLY)) for p in places(HOST["drop"] + "/planted")])
