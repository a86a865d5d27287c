"""A minimal MCP client over stdio for benchmarks: one request at a time, nothing between the clock and the pipe."""

import json
import subprocess
import tempfile
import time

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Server:
    """One `palisade mcp` with a state directory of its own."""

    def __init__(self, binary):
        self.state = tempfile.TemporaryDirectory(prefix="palisade-bench-")
        command = [binary, "--state-dir", self.state.name, "mcp"]
        self.process = subprocess.Popen(
            command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.number = 0
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.request("initialize", client)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method, params):
        """The result of one request; notifications on the way are passed over."""
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server ended")
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer["result"]

    def run(self, code, language="python", **options):
        """One run: its structured result."""
        arguments = {"language": language, "code": code, **options}
        return self.request("tools/call", {"name": "run", "arguments": arguments})["structuredContent"]

    def timed_ms(self, code="print(1)", **options):
        """Milliseconds from request to answer of a run that must complete."""
        started = time.perf_counter()
        result = self.run(code, **options)
        elapsed = (time.perf_counter() - started) * 1000
        if result["outcome"] != "completed":
            raise RuntimeError(f"the run ended {result}")
        return elapsed

    def rate(self, count, in_flight, code="print(1)", **options):
        """Runs per second with that many requests on their way."""
        params = {"name": "run", "arguments": {"language": "python", "code": code, **options}}
        sent = answered = 0
        started = time.perf_counter()
        while answered < count:
            while sent < count and sent - answered < in_flight:
                self.number += 1
                sent += 1
                self.write({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params})
            answer = json.loads(self.process.stdout.readline())
            if "id" not in answer:
                continue
            if answer["result"]["structuredContent"]["outcome"] != "completed":
                raise RuntimeError(f"a run ended {answer['result']}")
            answered += 1
        return count / (time.perf_counter() - started)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.state.cleanup()


def in_turns(sides, count, warm_up, pause_s):
    """Samples of several sides, each a function that returns one. They alternate, and which one is first rotates. The
    first rounds are not kept. The pause lets a server prepare its next sandbox, so that the runs are warm ones."""
    samples = {name: [] for name in sides}
    names = list(sides)
    for number in range(warm_up + count):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(pause_s)
            took = sides[name]()
            if number >= warm_up:
                samples[name].append(took)
    return samples
