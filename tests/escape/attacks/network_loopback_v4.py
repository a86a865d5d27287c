# attack: connects to a listener on the host's own loopback address
# family: network
# walls: network
# without: escaped
from attack import *
import socket

judge([("connect", lambda: len(socket.create_connection(("127.0.0.1", HOST["port"]), 2).recv(9)))])
