# attack: asks the kernel which way a packet to a documentation address would go; none is sent
# family: network
# walls: network
# without: never: the answer depends on the routes of the machine
from attack import *
import socket


def way(family, address):
    # Connecting a datagram socket looks up the route and sends nothing.
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((address, 9))
        return asking.getsockname()[0]


seen = []
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    result = attempt(lambda: way(family, address))
    if not result.startswith("E"):
        escaped("a route exists")
    seen.append(result)
held(" ".join(seen))
