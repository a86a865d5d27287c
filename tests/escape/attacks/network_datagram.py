# attack: sends a datagram to the host's loopback address and waits for an answer
# family: network
# walls: network
# without: escaped
from attack import *
import socket


def ask():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.settimeout(0.5)
        way.connect(("127.0.0.1", HOST["datagram_port"]))
        way.send(b"?")
        return len(way.recv(9))


judge([("datagram", lambda: ask())])
