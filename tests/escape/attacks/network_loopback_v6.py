# attack: connects to a listener on the host's own IPv6 loopback address, also in its mapped form
# family: network
# walls: network
# without: escaped
from attack import *
import socket


def connect(address, port):
    with socket.socket(socket.AF_INET6) as way:
        way.settimeout(2)
        way.connect((address, port))
        return len(way.recv(9))


judge([("::1", lambda: connect("::1", HOST["port6"])), ("mapped", lambda: connect("::ffff:127.0.0.1", HOST["port"]))])
