# attack: leaves System V memory, semaphores and queues for the next run to find
# family: persistence
# walls: ipc
# without: escaped
from attack import *

key = HOST["key"]
found = [call(29, key, 1, 0), call(64, key, 0, 0), call(68, key, 0)]
if any(not isinstance(word, str) for word in found):
    escaped("found what the last run left")
made = [call(29, key, 4096, 0o1666), call(64, key, 1, 0o1666), call(68, key, 0o1666)]
held("left it, having found: " + " ".join(found))
