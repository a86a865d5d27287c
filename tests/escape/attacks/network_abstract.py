# attack: connects to an abstract unix socket of the host
# family: network
# walls: network, landlock
# without: escaped
from attack import *
import socket


def connect():
    with socket.socket(socket.AF_UNIX) as way:
        way.connect("\0" + HOST["abstract"])
        return len(way.recv(9))


judge([("abstract", connect)])
