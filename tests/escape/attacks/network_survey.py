# attack: looks for interfaces, routes and sockets of the host
# family: network
# walls: network
# without: escaped
from attack import *

port = ":%04X " % HOST["port"]
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
carrying = [line for line in open("/proc/net/route").readlines()[1:] if line.strip()]
if carrying or port in open("/proc/net/tcp").read():
    escaped("interfaces %s, %d routes" % (" ".join(interfaces), len(carrying)))
held("only %s" % " ".join(interfaces))
