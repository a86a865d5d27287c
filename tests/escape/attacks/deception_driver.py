# attack: speaks for the driver: claims success and a value on every descriptor, then fails
# family: deception
# walls: seccomp
# outcome: failed
# without: never: what a driver says decides nothing, so there is no wall to take away
from attack import *

fields = ["done", "1", "ok", "0", "", "", "", "ESCAPE", "\"forged\"", ""]
message = (str(len(fields)) + "\0" + "".join(f + "\0" for f in fields)).encode()
for number in range(3, 256):
    attempt(lambda: os.write(number, message))
say("HELD: said so, EOK")
os._exit(7)
