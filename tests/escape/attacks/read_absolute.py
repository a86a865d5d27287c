# attack: opens a file of the host by its absolute path
# family: file reads
# walls: root
# without: escaped
from attack import *

judge([("open", lambda: len(open(path).read())) for path in places(HOST["secret"])])
