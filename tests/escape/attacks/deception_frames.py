# attack: writes frames of the guest's protocol, and floods, on every socket it can find
# family: deception
# walls: descriptors
# outcome: failed
# without: never: the stream is closed on exec in every build
from attack import *
import struct

sockets = []
for number in os.listdir("/proc/self/fd"):
    target = attempt(lambda: os.readlink("/proc/self/fd/" + number))
    if target.startswith("socket:"):
        sockets.append(int(number))
for frame in (struct.pack("<I", 3) + b"\x05\x01\x00", struct.pack("<I", 0xFFFFFFFF), b"\0" * 64, b"\xff" * 4096):
    for number in sockets:
        for _ in range(50):
            os.set_blocking(number, False)
            attempt(lambda: os.write(number, frame))
say("HELD: %d sockets heard it, EOK" % len(sockets))
os._exit(7)
