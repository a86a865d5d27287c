#!/usr/bin/env python3
"""Many open sandboxes at once: is anything mixed up, what does an idle one hold, how fast is a run in an open one.

    benches/sandboxes.py [--binary PATH] [--sandboxes N] [--runs N] [--at-once N] [--out results.json]

Starts `palisade serve` on a port of its own, opens the sandboxes, puts a secret into a Python variable of each, and
asks them at random for it. Memory is what only the processes of a sandbox hold: private pages of
/proc/*/smaps_rollup, summed over the processes of one sandbox. Raw samples are kept as JSON.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VERSION = "2026-07-28"
SEED = 20
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


class Server:
    """A server and one connection per thread."""

    def __init__(self, binary, state):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PALISADE_STATE_DIR": state}
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--no-auth"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            if '"listening"' in line:
                self.address = json.loads(line)["url"].removeprefix("http://").removesuffix("/mcp")
                break
        assert self.address, "the server did not start"
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.own = threading.local()

    def call(self, tool, arguments):
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection(self.address, timeout=120)
        params = {"name": tool, "arguments": arguments, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool,
        }
        self.own.connection.request("POST", "/mcp", body, headers)
        text = self.own.connection.getresponse().read().decode()
        if not text.startswith("{"):
            text = [line for line in text.splitlines() if line.startswith("data:") and '"id":1' in line][-1][5:]
        return json.loads(text)["result"]["structuredContent"]

    def timed(self, tool, arguments):
        started = time.perf_counter()
        result = self.call(tool, arguments)
        return result, (time.perf_counter() - started) * 1000


def descendants(pid):
    """All processes beneath one."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def memory_bytes(pid):
    """Private and proportional memory of one process, or None where it cannot be read."""
    parts = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file.readlines()[1:]:
                name, value = line.split()[:2]
                parts[name.rstrip(":")] = int(value) * 1024
    except OSError:
        return None
    return parts["Private_Clean"] + parts["Private_Dirty"], parts["Pss"]


def memory_by_sandbox(server_pid):
    """The processes beneath the server, gathered by their pid namespace: one per sandbox."""
    ours = os.readlink("/proc/self/ns/pid")
    sandboxes = {}
    for pid in descendants(server_pid):
        try:
            space = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue
        found = memory_bytes(pid)
        if space != ours and found:
            private, shared = sandboxes.get(space, (0, 0))
            sandboxes[space] = (private + found[0], shared + found[1])
    return list(sandboxes.values())


def quantile(samples, part):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def summary(samples):
    return {"p50": statistics.median(samples), "p95": quantile(samples, 0.95), "max": max(samples), "count": len(samples)}


def measure(server, arguments):
    def run(sandbox, code):
        return server.timed("run", {"sandbox_id": sandbox, "language": "python", "code": code})

    open_ms, first_ms, run_ms, wrong, word_of = [], [], [], [], {}
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        for opened, took in pool.map(lambda _: server.timed("sandbox_open", {}), range(arguments.sandboxes)):
            open_ms.append(took)
            word_of[opened["sandbox_id"]] = secrets.token_hex(8)

        def settle(item):
            return item[0], *run(item[0], f"secret = '{item[1]}'\nopen('secret', 'w').write(secret)")

        for sandbox, result, took in pool.map(settle, word_of.items()):
            first_ms.append(took)
            if result["outcome"] != "completed":
                wrong.append({"sandbox": sandbox, "result": result["outcome"], "error": result.get("error")})
        chance = random.Random(SEED)
        chosen = chance.choices(list(word_of), k=arguments.runs)

        def ask(sandbox):
            return sandbox, *run(sandbox, "print(secret, open('secret').read())")

        for sandbox, result, took in pool.map(ask, chosen):
            run_ms.append(took)
            if result.get("stdout") != f"{word_of[sandbox]} {word_of[sandbox]}\n":
                wrong.append({"sandbox": sandbox, "result": result.get("stdout"), "error": result.get("error")})
    # One at a time, with nobody else asking.
    alone_ms = [run(sandbox, "secret")[1] for sandbox in chosen[:100]]
    memory = memory_by_sandbox(server.process.pid)
    own = memory_bytes(server.process.pid)
    close_ms = [server.timed("sandbox_close", {"sandbox_id": sandbox})[1] for sandbox in word_of]
    left = memory_by_sandbox(server.process.pid)
    return {
        "wrong": wrong,
        "left_after_close": len(left),
        "server_private_bytes": own and own[0],
        "private_bytes_per_sandbox": [private for private, _ in memory],
        "pss_bytes_per_sandbox": [shared for _, shared in memory],
        "open_ms": open_ms, "first_run_ms": first_ms, "run_ms": run_ms, "run_alone_ms": alone_ms, "close_ms": close_ms,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--sandboxes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.chmod(state, 0o700)
        server = Server(arguments.binary, state)
        try:
            samples = measure(server, arguments)
        finally:
            server.process.terminate()
            server.process.wait(60)
    names = ["open_ms", "first_run_ms", "run_ms", "run_alone_ms", "close_ms", "private_bytes_per_sandbox", "pss_bytes_per_sandbox"]
    told = {name: summary(samples[name]) for name in names if samples[name]}
    for name, parts in told.items():
        print(f"{name:28} " + "  ".join(f"{key} {value:,.1f}" for key, value in parts.items()))
    print(f"server_private_bytes {samples['server_private_bytes']:,}  left_after_close {samples['left_after_close']}  wrong {len(samples['wrong'])}")
    if arguments.out:
        asked = {"sandboxes": arguments.sandboxes, "runs": arguments.runs, "at_once": arguments.at_once}
        with open(arguments.out, "w") as file:
            json.dump({"asked": asked, "summary": told, "samples": samples}, file)
            file.write("\n")
    for problem in samples["wrong"][:5]:
        print("WRONG", problem)
    sys.exit(1 if samples["wrong"] or samples["left_after_close"] else 0)


main()
