# attack: follows symbolic links of its own making to a file of the host
# family: file reads
# walls: root
# without: escaped
from attack import *


def follow(number, path):
    os.symlink(path, "link%d" % number)
    os.symlink("link%d" % number, "chain%d" % number)
    return len(open("chain%d" % number).read())


judge([("link", lambda n=n, p=p: follow(n, p)) for n, p in enumerate(places(HOST["secret"]))])
