# attack: writes to a file of the host through links, a rename and a hard link
# family: writes
# walls: root, landlock
# without: escaped
from attack import *


def through_link(number, path):
    os.symlink(path, "link%d" % number)
    return open("link%d" % number, "r+").write("x")


tries = [("link", lambda n=n, p=p: through_link(n, p)) for n, p in enumerate(places(HOST["target"]))]
tries += [("hard link", lambda p=p: os.link(p, "hard") or 1) for p in places(HOST["target"])]
open("mine", "w").close()
tries += [("rename", lambda p=p: os.rename("mine", p) or 1) for p in places(HOST["drop"] + "/mine")]
judge(tries)
