# attack: writes to a file of the host that everybody may write
# family: writes
# walls: root, landlock
# without: escaped
from attack import *

judge([("append", lambda: open(path, "a").write("x")) for path in places(HOST["target"])])
