"""A web of one host behind a proxy, on loopback: what a driver's tests for proxies need.

`origin.test` answers with its scheme and the path, over http and https; the proxy refuses every other host with 403.
"""

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading


class Web:
    def __enter__(self):
        self.seen = []
        self.folder = tempfile.mkdtemp()
        key, certificate = os.path.join(self.folder, "key"), os.path.join(self.folder, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=origin.test", "-days", "1",
                        "-keyout", key, "-out", certificate], check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        shutil.rmtree(self.folder, True)

    def variables(self):
        address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        return {"http_proxy": address, "https_proxy": address, "no_proxy": "localhost,.exempt.test"}

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with connection:
            try:
                line = head(connection)
                method, target, _ = line.split(" ")
                self.seen.append("%s %s" % (method, target))
                if method != "CONNECT":
                    path = target.removeprefix("http://origin.test")
                    return answer(connection, "200 OK" if path != target else "403 Forbidden", "plain " + path)
                if target != "origin.test:443":
                    return answer(connection, "403 Forbidden", "")
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                with self.context.wrap_socket(connection, server_side=True) as secure:
                    answer(secure, "200 OK", "tls " + head(secure).split(" ")[1])
            except (OSError, ValueError):
                pass


def head(connection):
    """The request line; the rest of the head is read and left."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = connection.recv(4096)
        if not part:
            raise OSError("no request")
        text += part
    return text.split(b"\r\n")[0].decode()


def answer(connection, status, body):
    text = "HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
    connection.sendall(text.encode())
