# attack: connects to a unix socket of the host that has a path, as the socket of a container engine has
# family: network
# walls: root
# without: escaped
from attack import *
import socket


def connect(path):
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(path)
        return len(way.recv(9))


judge([("path", lambda p=p: connect(p)) for p in places(HOST["socket"])])
