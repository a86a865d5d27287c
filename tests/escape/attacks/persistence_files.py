# attack: leaves a file in every writable place for the next run to find
# family: persistence
# walls: root, landlock
# without: escaped
from attack import *

folders = ["/tmp", "/dev/shm", "/workspace", "/home/agent", "/", "/var/tmp"] + places(HOST["drop"])
left = [f for f in folders if os.path.exists(f + "/left-" + HOST["marker"])]
if left:
    escaped("found what the last run left in %s" % left)
made = [attempt(lambda: os.close(os.open(f + "/left-" + HOST["marker"], os.O_CREAT | os.O_WRONLY, 0o666))) for f in folders]
held("left it: " + " ".join(str(word) for word in made))
