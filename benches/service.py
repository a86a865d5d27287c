#!/usr/bin/env python3
"""What `palisade serve` does under load, and what one call costs over HTTP.

    benches/service.py [--binary PATH] [--calls N] [--runs N] [--rounds N] [--out samples.json] [--budget MS]

sequential    one connection, one call after the other: the least that can be had of HTTP here (/healthz), a trivial
              tool (get_capabilities), a python run
calls         get_capabilities over 32 connections that stay open
runs          python programs in fresh sandboxes over 16 connections that stay open

The client is asyncio over plain sockets, in one process beside the server: its own work is in every figure. The
resident memory of the server is sampled meanwhile; it should be flat after the first samples. Any error fails the
whole. Raw samples are kept as JSON.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "clients"))

from served import Served  # noqa: E402 (the path is above)

CALL_CONNECTIONS = 32
RUN_CONNECTIONS = 16
SAMPLE_PAUSE_S = 0.5
READ_BYTES_MAX = 16 << 20
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


def call_of(server, tool, given):
    """Bytes of a request of the newer era."""
    params = {"name": tool, "arguments": given, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One that stays open."""

    @classmethod
    async def open(cls, server):
        self = cls()
        host, port = server.url.removeprefix("http://").removesuffix("/mcp").rsplit(":", 1)
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=READ_BYTES_MAX)
        return self

    async def ask(self, request):
        """Status and body."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return status, await self.reader.readexactly(int(line.split(b":")[1]))
        raise RuntimeError(f"an answer without a length: {head}")

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


def is_right(status, body, word):
    return status == 200 and word in body and b'"isError":true' not in body


async def one_after_the_other(server, request, word, count):
    """Milliseconds of each call on one connection."""
    connection = await Connection.open(server)
    samples = []
    for number in range(count + count // 10):
        began = time.perf_counter()
        status, body = await connection.ask(request)
        taken = (time.perf_counter() - began) * 1000
        if not is_right(status, body, word):
            raise RuntimeError(f"{status} {body[:300]}")
        # The first ones warm it up.
        if number >= count // 10:
            samples.append(taken)
    await connection.close()
    return samples


async def load(server, request, word, total, connections):
    """Milliseconds of each call of many at once, and the errors there were."""
    left, samples, errors = iter(range(total)), [], []

    async def work():
        connection = await Connection.open(server)
        for _ in left:
            began = time.perf_counter()
            try:
                status, body = await connection.ask(request)
                if not is_right(status, body, word):
                    errors.append(f"{status} {body[:300]}")
            except (OSError, EOFError, RuntimeError) as error:
                errors.append(repr(error))
                connection = await Connection.open(server)
            samples.append((time.perf_counter() - began) * 1000)
        await connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return samples, errors, time.perf_counter() - began


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


async def sampled(server, work):
    """The result of some work, and the server's resident memory from before it until after."""
    series = [resident_mb(server.pid)]
    working = asyncio.ensure_future(work)
    while not working.done():
        await asyncio.wait([working], timeout=SAMPLE_PAUSE_S)
        series.append(resident_mb(server.pid))
    return working.result(), [round(value, 2) for value in series]


def figures(samples):
    ordered = sorted(samples)
    at = lambda part: round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)
    return {"n": len(ordered), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": round(ordered[-1], 3)}


def thinned(series, count=12):
    step = max(1, len(series) // count)
    return series[::step] + series[-1:]


async def measure(server, arguments):
    capabilities = call_of(server, "get_capabilities", {})
    program = call_of(server, "run", {"language": "python", "code": "print(6 * 7)"})
    health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found = {"machine": {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}, "summary": {}, "rss_mb": {}, "samples_ms": {}}
    for name, request, word, count in (
        ("healthz sequential", health, b"ok", arguments.rounds),
        ("capabilities sequential", capabilities, b"languages", arguments.rounds),
        ("run sequential", program, b"42", max(1, arguments.rounds // 10)),
    ):
        found["samples_ms"][name] = await one_after_the_other(server, request, word, count)
        found["summary"][name] = figures(found["samples_ms"][name])
    for name, request, word, total, connections in (
        ("capabilities load", capabilities, b"languages", arguments.calls, CALL_CONNECTIONS),
        ("run load", program, b"42", arguments.runs, RUN_CONNECTIONS),
        # Once more after everything: what grew with the first ten thousand must not grow again.
        ("capabilities again", capabilities, b"languages", arguments.calls, CALL_CONNECTIONS),
    ):
        (samples, errors, seconds), series = await sampled(server, load(server, request, word, total, connections))
        found["samples_ms"][name], found["rss_mb"][name] = samples, series
        more = {"connections": connections, "errors": len(errors), "per_s": round(total / seconds, 1)}
        found["summary"][name] = {**figures(samples), **more}
        for error in errors[:3]:
            print(f"error: {error}", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1_000, help="calls one after the other")
    parser.add_argument("--out", help="where raw samples go, as JSON")
    parser.add_argument("--budget", type=float, help="fail when the median of a trivial tool is above so many ms")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["PALISADE_STATE_DIR"] = state
        server = Served(arguments.binary)
        try:
            found = asyncio.run(measure(server, arguments))
        finally:
            status = server.end()
    print(f"{'ms':26} {'n':>6} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8}")
    for name, one in found["summary"].items():
        more = f"   {one['per_s']:8.1f}/s, {one['errors']} errors" if "per_s" in one else ""
        print(f"{name:26} {one['n']:6} {one['p50']:8.3f} {one['p95']:8.3f} {one['p99']:8.3f} {one['max']:8.3f}{more}")
    for name, series in found["rss_mb"].items():
        print(f"resident MB, {name}: {' '.join(f'{value:.1f}' for value in thinned(series))}")
    if arguments.out:
        found["samples_ms"] = {name: [round(v, 3) for v in values] for name, values in found["samples_ms"].items()}
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(found, file)
            file.write("\n")
    errors = sum(one.get("errors", 0) for one in found["summary"].values())
    trivial = found["summary"]["capabilities sequential"]["p50"]
    if arguments.budget and trivial > arguments.budget:
        print(f"above the budget of {arguments.budget} ms")
        return 1
    return 1 if errors or status else 0


if __name__ == "__main__":
    sys.exit(main())
