"""Figures of `palisade mcp`, with raw samples as JSON: latency.py BINARY [ROUNDS].

start_ms      from starting the process to its first answer, one per era
capabilities  round trip of get_capabilities over pipes
hello_ms      round trip of a run that prints, fresh sandbox included
rss_mb        resident memory of the idle server; with the spawner beside it
"""

import json
import os
import subprocess
import sys
import time

binary = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 500
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "latency", "version": "1"},
}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "latency", "version": "1"}}


class Server:
    def __init__(self):
        environment = {**os.environ, "PALISADE_LOG": "error"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([binary, "mcp"], stdin=pipe, stdout=pipe, env=environment, bufsize=0)
        self.reader = self.process.stdout
        self.buffer = b""
        self.number = 0

    def ask(self, method, params):
        self.number += 1
        text = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        self.process.stdin.write(text.encode() + b"\n")
        while b"\n" not in self.buffer:
            self.buffer += os.read(self.reader.fileno(), 1 << 20)
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def call(self, name, given):
        return self.ask("tools/call", {"name": name, "arguments": given, "_meta": META})

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0


def milliseconds(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def start(method, params):
    began = time.perf_counter()
    server = Server()
    server.ask(method, params)
    taken = (time.perf_counter() - began) * 1000
    server.close()
    return taken


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def figures(samples):
    ordered = sorted(samples)
    at = lambda part: round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)
    return {"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "min": round(ordered[0], 3), "n": len(ordered)}


warm = Server()
warm.ask("initialize", INITIALIZE)
warm.close()
samples = {
    "start_initialize_ms": [start("initialize", INITIALIZE) for _ in range(30)],
    "start_discover_ms": [start("server/discover", {"_meta": META}) for _ in range(30)],
}
server = Server()
server.ask("server/discover", {"_meta": META})
samples["first_tools_list_ms"] = [milliseconds(lambda: server.ask("tools/list", {"_meta": META}))]
server.call("get_capabilities", {})
time.sleep(0.5)
idle = resident_mb(server.process.pid)
beside = sum(resident_mb(child) for child in children(server.process.pid))
samples["capabilities_ms"] = [milliseconds(lambda: server.call("get_capabilities", {})) for _ in range(rounds)]
hello = {"language": "python", "code": "print(1)"}
samples["hello_ms"] = [milliseconds(lambda: server.call("run", hello)) for _ in range(min(rounds, 100))]
after = resident_mb(server.process.pid)
server.close()
summary = {name: figures(values) for name, values in samples.items()}
summary["rss_idle_mb"] = round(idle, 1)
summary["rss_idle_with_spawner_mb"] = round(idle + beside, 1)
summary["rss_after_runs_mb"] = round(after, 1)
print(json.dumps({"summary": summary, "samples": {name: [round(v, 3) for v in values] for name, values in samples.items()}}))
for name, value in summary.items():
    print(f"{name:28} {value}", file=sys.stderr)
