# attack: leaves a listener on a port and an abstract socket, in a daemon, for the next run to find
# family: persistence
# walls: pid
# without: never: the daemon dies with its process namespace, which every build has
from attack import *
import socket
import time

place = "\0left-" + HOST["marker"]
asking = socket.socket(socket.AF_UNIX)
if not isinstance(attempt(lambda: asking.connect(place) or 1), str):
    escaped("the daemon of the last run answers")
listening = socket.socket(socket.AF_UNIX)
listening.bind(place)
listening.listen()
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    time.sleep(30)
held("left it: ECONNREFUSED")
