"""A web server and a DNS resolver on loopback, for tests of egress: origin.py CERTIFICATE KEY LOG

Prints three ports: TLS, plain HTTP, DNS. Answers A questions about `*.example` with 127.0.0.1, and about names that begin
with the word of an address kind with such an address; names that begin with `silent` get no answer. Every question and every request is a line of LOG. Files of the
folder `git` beside LOG are served beneath `/git/`, which is all that git's dumb protocol needs.
"""

import http.server
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading

CERTIFICATE, KEY, LOG = sys.argv[1:4]
REPOSITORIES = os.path.join(os.path.dirname(os.path.abspath(LOG)), "git")
LOCK = threading.Lock()
ADDRESSES = {"private": "10.0.0.1", "metadata": "169.254.169.254", "carrier": "100.64.0.1", "any": "0.0.0.0", "multicast": "224.0.0.1"}
asked = {}


def note(line):
    with LOCK, open(LOG, "a") as file:
        file.write(line + "\n")


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, **fields):
        note(f"{self.command} {self.path}")
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/redirect?"):
            return self.answer(302, b"", Location=self.path.split("?", 1)[1])
        if self.path.startswith("/bytes/"):
            return self.answer(200, b"x" * int(self.path.split("/")[2]))
        if self.path.startswith("/git/"):
            return self.answer_file(os.path.join(REPOSITORIES, self.path.split("?")[0].removeprefix("/git/")))
        self.answer(200, b"hello " + self.path.encode() + b"\n")

    def answer_file(self, path):
        if ".." in path or not os.path.isfile(path):
            return self.answer(404, b"")
        with open(path, "rb") as file:
            self.answer(200, file.read())

    def do_POST(self):
        self.answer(200, self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_):
        pass


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        kind = struct.unpack("!H", data[at + 1 : at + 3])[0]
        name = ".".join(labels)
        if kind != 1:
            return self.reply(data, at, b"", sock)
        note(f"DNS {name}")
        if name.startswith("silent"):
            return None
        address = next((to for word, to in ADDRESSES.items() if name.startswith(word)), "127.0.0.1")
        if name.startswith("rebind"):
            # The first answer is the origin, later ones are not.
            asked[name] = asked.get(name, 0) + 1
            address = "127.0.0.1" if asked[name] == 1 else "169.254.169.254"
        record = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(address)
        self.reply(data, at, record, sock)

    def reply(self, data, at, record, sock):
        head = data[:2] + b"\x81\x80\0\x01" + (b"\0\x01" if record else b"\0\0") + b"\0\0\0\0"
        sock.sendto(head + data[12 : at + 5] + record, self.client_address)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
tls, plain = Server(("127.0.0.1", 0), Web), Server(("127.0.0.1", 0), Web)
tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
names = socketserver.ThreadingUDPServer(("127.0.0.1", 0), Names)
names.daemon_threads = True
for server in (tls, plain, names):
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(tls.server_port, plain.server_port, names.server_address[1], flush=True)
sys.stdin.read()
