"""What reaching the web costs: runs without and with access, a tunnel beside a direct connection, one stream.

Usage: egress.py TEST_BINARY RESULTS.json [SAMPLES]

The test build is needed (`--features breach`), because only that reaches a loopback address. The hosts are threads of this
program: an echo server, a source of bytes and a resolver. Samples of runs alternate over four servers: without any access
configured (`plain` and `again`), with access configured and not asked for (`offered`), and asked for (`granted`). All
samples are kept. Throughput is measured with several requests on their way at once, in turns.
"""

import json
import os
import platform
import socket
import socketserver
import statistics
import struct
import sys
import tempfile
import threading
import time

import mcp_stdio

RUNS = 400
WARM_UP = 30
PAUSE_S = 0.05
TUNNELS = 300
STREAM_MB = 512
RATE_RUNS = 400
IN_FLIGHT = 8
ROUNDS = 3

TUNNEL = """
import json, socket, time
samples = []
for _ in range(COUNT):
    begun = time.perf_counter()
    link = socket.create_connection(("127.0.0.1", 3128))
    link.sendall(b"CONNECT echo.example:PORT HTTP/1.1\\r\\nHost: echo.example:PORT\\r\\n\\r\\n")
    head = b""
    while b"\\r\\n\\r\\n" not in head: head += link.recv(4096)
    assert head.startswith(b"HTTP/1.1 200"), head
    link.sendall(b"x"); link.recv(1)
    samples.append((time.perf_counter() - begun) * 1e6)
    link.close()
print(json.dumps(samples))
"""

STREAM = """
import socket, time
link = socket.create_connection(("127.0.0.1", 3128))
link.sendall(b"CONNECT source.example:PORT HTTP/1.1\\r\\nHost: source.example:PORT\\r\\n\\r\\n")
head = b""
while b"\\r\\n\\r\\n" not in head: head += link.recv(1)
buffer, got, begun = bytearray(1 << 20), 0, time.perf_counter()
while True:
    more = link.recv_into(buffer)
    if not more: break
    got += more
print(got / 1e6 / (time.perf_counter() - begun))
"""


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := self.request.recv(4096):
            self.request.sendall(data)


class Source(socketserver.BaseRequestHandler):
    def handle(self):
        piece = b"x" * (1 << 20)
        for _ in range(STREAM_MB):
            self.request.sendall(piece)


class Names(socketserver.BaseRequestHandler):
    """Answers every question for an IPv4 address with loopback."""

    def handle(self):
        data, sock = self.request
        at = 12
        while data[at]:
            at += 1 + data[at]
        is_ipv4 = struct.unpack("!H", data[at + 1 : at + 3])[0] == 1
        record = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x7f\0\0\x01" if is_ipv4 else b""
        head = data[:2] + b"\x81\x80\0\x01" + (b"\0\x01" if record else b"\0\0") + b"\0\0\0\0"
        sock.sendto(head + data[12 : at + 5] + record, self.client_address)


class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


class Udp(socketserver.ThreadingUDPServer):
    daemon_threads = True


def started(kind, handler):
    host = kind(("127.0.0.1", 0), handler)
    threading.Thread(target=host.serve_forever, daemon=True).start()
    return host.server_address[1]


def direct(port):
    """Microseconds of a connection and an echo without a tunnel."""
    samples = []
    for _ in range(TUNNELS):
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(b"x")
            link.recv(1)
            samples.append((time.perf_counter() - begun) * 1e6)
    return samples


def server(binary, config=None):
    mcp_stdio.ENVIRONMENT = {"PATH": "/usr/bin:/bin", **({"XDG_CONFIG_HOME": config} if config else {})}
    return mcp_stdio.Server(binary)


def within(open_server, code):
    result = open_server.run(code, access=["web"], timeout_ms=120000)
    if result["outcome"] != "completed":
        raise RuntimeError(f"the run ended {result}")
    return json.loads(result["stdout"])


def main():
    binary, results = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else RUNS
    echo, source, names = started(Tcp, Echo), started(Tcp, Source), started(Udp, Names)
    with tempfile.TemporaryDirectory(prefix="palisade-bench-access-") as folder:
        os.mkdir(os.path.join(folder, "palisade"), 0o755)
        with open(os.path.join(folder, "palisade", "palisade.toml"), "w", encoding="utf-8") as file:
            file.write(
                f'[egress]\nresolver = "127.0.0.1:{names}"\n[access.web]\n'
                f'egress = ["echo.example:{echo} raw loopback", "source.example:{source} raw loopback"]\n'
                f"max = {{ connections = 32, mb_out = 10, mb_in = {STREAM_MB * 2} }}\n"
            )
        plain, offered, granted, again = server(binary), server(binary, folder), server(binary, folder), server(binary)
        sides = {
            "plain": plain.timed_ms,
            "offered": offered.timed_ms,
            "granted": lambda: granted.timed_ms(access=["web"]),
            "again": again.timed_ms,
        }
        samples = mcp_stdio.in_turns(sides, count, WARM_UP, PAUSE_S)
        tunnel = [], []
        for _ in range(ROUNDS):
            tunnel[0].extend(direct(echo))
            tunnel[1].extend(within(granted, TUNNEL.replace("COUNT", str(TUNNELS)).replace("PORT", str(echo))))
        streams = [within(granted, STREAM.replace("PORT", str(source))) for _ in range(ROUNDS)]
        rates = {"plain": [], "granted": []}
        for _ in range(ROUNDS):
            rates["plain"].append(plain.rate(RATE_RUNS, IN_FLIGHT))
            rates["granted"].append(granted.rate(RATE_RUNS, IN_FLIGHT, access=["web"]))
        for one in (plain, offered, granted, again):
            one.close()
    middle = {name: statistics.median(ones) for name, ones in samples.items()}
    more = {name: (middle[name] - middle["plain"]) * 1000 for name in middle}
    pairs = {name: statistics.median(a - b for a, b in zip(ones, samples["plain"])) * 1000 for name, ones in samples.items()}
    connect = statistics.median(tunnel[1]) - statistics.median(tunnel[0])
    whole = {
        "machine": {"kernel": platform.release(), "cores": os.cpu_count()},
        "runs_p50_ms": middle,
        "runs_more_us": more,
        "runs_more_us_of_pairs": pairs,
        "runs_per_s": {name: statistics.median(ones) for name, ones in rates.items()},
        "connect_more_us": connect,
        "stream_mb_per_s": statistics.median(streams),
        "samples": {"runs_ms": samples, "direct_us": tunnel[0], "tunnel_us": tunnel[1], "streams_mb_per_s": streams, "runs_per_s": rates},
    }
    os.makedirs(os.path.dirname(results) or ".", exist_ok=True)
    with open(results, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")
    for name in middle:
        print(f"{name:8} p50 {middle[name]:.3f} ms, {more[name]:+.0f} us, {pairs[name]:+.0f} us in the middle pair")
    for name, ones in rates.items():
        print(f"{name:8} {statistics.median(ones):.0f} runs/s with {IN_FLIGHT} on their way")
    print(f"tunnel: {connect:.0f} us over direct ({statistics.median(tunnel[0]):.0f} us)")
    print(f"stream: {statistics.median(streams):.0f} MB/s")


if __name__ == "__main__":
    main()
