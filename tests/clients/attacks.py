"""Clients that misbehave, over raw lines: attacks.py BINARY [WORD]. Every attack ends with nothing left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

from checks import processes_with, results, say

binary = sys.argv[1]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "attacks", "version": "1"},
}
PATIENCE_S = 15


class Raw:
    """A server and both ends of its pipes; messages of the newer era, which need no opening."""

    def __init__(self, log="error", stderr=subprocess.DEVNULL):
        pipe = subprocess.PIPE
        environment = {**os.environ, "PALISADE_LOG": log}
        self.process = subprocess.Popen([binary, "mcp"], stdin=pipe, stdout=pipe, stderr=stderr, env=environment, bufsize=0)
        self.pid = self.process.pid
        self.buffer = b""
        self.kept = []
        self.alarm = threading.Timer(60, self.process.kill)
        self.alarm.start()

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view):]

    def send(self, number, method, params=None, **meta):
        params = {**(params or {}), "_meta": {**META, **meta}}
        self.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")

    def run(self, number, language, code, given=None, **meta):
        self.send(number, "tools/call", {"name": "run", "arguments": {"language": language, "code": code, **(given or {})}}, **meta)

    def cancel(self, number):
        self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}).encode() + b"\n")

    def receive(self):
        while b"\n" not in self.buffer:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError("the server ended")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def answer(self, number):
        """The next answer with that id; others are kept."""
        for index, message in enumerate(self.kept):
            if message.get("id") == number:
                return self.kept.pop(index)
        while (message := self.receive()).get("id") != number:
            self.kept.append(message)
        return message

    def is_alive(self):
        self.run("alive", "python", "print('alive')")
        found = self.answer("alive")["result"]["structuredContent"]
        assert found["outcome"] == "completed" and found["stdout"] == "alive\n", found

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self.alarm.cancel()
        assert code == 0, f"exit status {code}"

    def resident_mb(self):
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def until(condition, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


def sleeper(server, number, **meta):
    """Starts a program that can be seen from outside; gives its mark."""
    mark = f"{time.time_ns()}.25"
    server.run(number, "bash", f"sleep {mark}", **meta)
    until(lambda: processes_with(mark))
    return mark


def attack_garbage():
    server = Raw()
    server.write(b"\n\r\n{\nnot json\n\xff\xfe\x00\n[]\n5\nnull\n\"x\"\n{}\n" + b"[" * 5000 + b"\n")
    server.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n{"jsonrpc":"2.0","id":77,"result":{}}\n')
    server.write(b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}\n{"jsonrpc":"2.0","id":3,"method":7}\n')
    server.is_alive()
    server.write(b'{"jsonrpc":"2.0","method":"notifications/nonsense","params":[]}\n{"jsonrpc":"1.0","id":4,"method":"x"}\n')
    server.is_alive()
    server.end()


def attack_unknown_method_and_odd_params():
    server = Raw()
    server.is_alive()
    server.send(1, "no/such/method")
    assert server.answer(1)["error"]["code"] == -32601
    for number, given in enumerate([[], "x", 5, {"name": 5}, {"name": "run", "arguments": []}], 10):
        text = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": given})
        server.write(text.encode() + b"\n")
        assert "error" in server.answer(number), given
    server.send(20, "tools/call", {"name": "run"})
    assert server.answer(20)["result"]["structuredContent"]["outcome"] == "refused"
    server.end()


def attack_same_id_twice():
    server = Raw()
    server.run(5, "python", "import time; time.sleep(0.5); print('first')")
    server.run(5, "python", "print('second')")
    assert server.answer(5)["error"]["code"] == -32600
    assert server.answer(5)["result"]["structuredContent"]["stdout"] == "first\n"
    server.is_alive()
    server.end()


def attack_endless_line():
    server = Raw()
    server.write(b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"x":"')
    for _ in range(40):
        server.write(b"y" * (1 << 20))
    server.write(b'"}}\n')
    assert "error" in server.answer(9)
    server.is_alive()
    assert server.resident_mb() < 60, server.resident_mb()
    server.end()


def attack_deep_nesting():
    server = Raw()
    deep = "[" * 400 + "]" * 400
    server.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"variables":{"v":' + deep.encode() + b"}}}}\n")
    assert "error" in server.answer(2)
    server.is_alive()
    server.end()


def attack_not_reading_answers():
    """The peer asks without end and does not read: it is not read either, and memory stays flat."""
    server = Raw()
    server.is_alive()
    line = json.dumps({"jsonrpc": "2.0", "id": "N", "method": "tools/list", "params": {"_meta": META}})
    os.set_blocking(server.process.stdin.fileno(), False)
    sent, stalled, rest = 0, time.monotonic(), b""
    while time.monotonic() - stalled < 1.5 and sent < 200_000:
        rest = rest or line.replace('"N"', str(sent)).encode() + b"\n"
        try:
            written = os.write(server.process.stdin.fileno(), rest)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        stalled = time.monotonic()
        rest = rest[written:]
        sent += not rest
    assert sent < 200_000, "the server never pushed back"
    assert server.resident_mb() < 60, server.resident_mb()
    os.set_blocking(server.process.stdin.fileno(), True)
    threading.Thread(target=lambda: (server.write(rest), server.run("alive", "python", "print(1)")), daemon=True).start()
    assert server.answer("alive")["result"]["structuredContent"]["stdout"] == "1\n"
    server.end()


def attack_not_reading_progress():
    """A flood of output to a client that does not read ends at its limits all the same."""
    server = Raw()
    server.is_alive()
    mark = sleeper(server, 1, progressToken="p")
    server.cancel(1)
    for number in range(2, 6):
        code = "import time\nt = time.time()\nwhile time.time() - t < 60:\n    print('x' * 200, flush=True)\n    time.sleep(0.001)"
        server.run(number, "python", code, {"timeout_ms": 1500, "limits": {"output_kb": 16384}}, progressToken=number)
    until(lambda: not processes_with(mark))
    time.sleep(3)
    assert server.resident_mb() < 80, server.resident_mb()
    for number in range(2, 6):
        assert server.answer(number)["result"]["structuredContent"]["outcome"] == "timed_out"
    server.end()


def attack_not_reading_and_hanging_up():
    server = Raw()
    server.is_alive()
    mark = sleeper(server, "s")
    line = json.dumps({"jsonrpc": "2.0", "id": "N", "method": "tools/list", "params": {"_meta": META}})
    os.set_blocking(server.process.stdin.fileno(), False)
    blocked = 0
    number = 0
    while blocked < 50:
        try:
            os.write(server.process.stdin.fileno(), line.replace('"N"', str(number)).encode() + b"\n")
            number += 1
        except BlockingIOError:
            blocked += 1
            time.sleep(0.01)
    server.end()
    until(lambda: not processes_with(mark))


def attack_closing_output_only():
    server = Raw()
    server.is_alive()
    mark = sleeper(server, 1)
    server.process.stdout.close()
    server.send(2, "tools/list")
    assert server.process.wait(PATIENCE_S) == 0
    server.alarm.cancel()
    until(lambda: not processes_with(mark))


def attack_end_of_input_during_a_run():
    server = Raw()
    mark = sleeper(server, 1)
    began = time.monotonic()
    server.process.stdin.close()
    assert server.answer(1)["result"]["structuredContent"]["outcome"] == "cancelled"
    assert server.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < 2, "the end took too long"
    server.alarm.cancel()
    assert not processes_with(mark)


def attack_client_killed_during_a_run():
    """The client dies; its pipes close with it."""
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run", "_meta": META, "arguments": {
        "language": "bash", "code": "sleep {mark}"}}}]
    mark = f"{time.time_ns()}.75"
    text = json.dumps(lines[0]).replace("{mark}", mark)
    program = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.argv[1], 'mcp'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "p.stdin.write(sys.argv[2].encode() + b'\\n'); p.stdin.flush(); print(p.pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PALISADE_LOG": "error"}
    client = subprocess.Popen([sys.executable, "-c", program, binary, text], stdout=subprocess.PIPE, env=environment)
    server = int(client.stdout.readline())
    until(lambda: processes_with(mark))
    client.kill()
    client.wait()
    client.stdout.close()
    until(lambda: not processes_with(mark) and not os.path.exists(f"/proc/{server}"))


def attack_server_killed_during_a_run():
    server = Raw()
    mark = sleeper(server, 1)
    server.process.kill()
    server.process.wait()
    server.alarm.cancel()
    until(lambda: not processes_with(mark))


def attack_signals():
    for number in (signal.SIGTERM, signal.SIGINT):
        server = Raw()
        mark = sleeper(server, 1)
        server.process.send_signal(number)
        assert server.answer(1)["result"]["structuredContent"]["outcome"] == "killed"
        assert server.process.wait(PATIENCE_S) == 0
        server.alarm.cancel()
        assert not processes_with(mark)
        idle = Raw()
        idle.is_alive()
        idle.process.send_signal(number)
        assert idle.process.wait(PATIENCE_S) == 0
        idle.alarm.cancel()


def attack_every_revision():
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "1999-01-01", "2026-07-28"):
        server = Raw()
        opening = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        server.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}).encode() + b"\n")
        spoken = server.answer(0)["result"]["protocolVersion"]
        assert spoken == (version if version[:4] in ("2024", "2025") else "2025-11-25"), (version, spoken)
        server.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert server.answer(1)["result"] == {}
        server.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n')
        listed = server.answer(2)["result"]
        assert "run" in [tool["name"] for tool in listed["tools"]] and "resultType" not in listed, listed
        server.end()
    server = Raw()
    server.send(1, "server/discover")
    found = server.answer(1)["result"]
    assert found["supportedVersions"][-1] == "2026-07-28" and found["ttlMs"] > 0 and found["cacheScope"], found
    server.send(2, "tools/list")
    listed = server.answer(2)["result"]
    assert listed["resultType"] == "complete" and listed["ttlMs"] > 0 and listed["cacheScope"] == "public", listed
    assert listed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "palisade", listed["_meta"]
    server.send(3, "tools/list", **{"io.modelcontextprotocol/protocolVersion": "2031-01-01"})
    assert server.answer(3)["error"]["code"] == -32022
    server.end()


def attack_hoarding_memory():
    """Many waiting runs with large inputs: beyond a budget the answer is to come back later."""
    server = Raw()
    server.is_alive()
    for number in range(14):
        server.run(number, "bash", "sleep 30", {"stdin": "x" * (12 << 20)})
    found = server.receive()["result"]["structuredContent"]
    assert found["outcome"] == "unavailable" and found["error"]["retry_after_ms"] > 0, found
    assert server.resident_mb() < 500, server.resident_mb()
    server.end()


def attack_over_sockets():
    """Some clients connect sockets rather than pipes."""
    for ending in ("close", "signal"):
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PALISADE_LOG": "error"}
        process = subprocess.Popen([binary, "mcp"], stdin=theirs, stdout=theirs, env=environment)
        theirs.close()
        ours.settimeout(PATIENCE_S)
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": META, "name": "run",
            "arguments": {"language": "python", "code": "print(1)"}}})
        ours.sendall(text.encode() + b"\n")
        assert json.loads(ours.makefile().readline())["result"]["structuredContent"]["stdout"] == "1\n"
        if ending == "close":
            ours.close()
        else:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0
        ours.close()


def attack_too_many_runs():
    server = Raw()
    server.is_alive()
    total = 400
    for number in range(total):
        server.run(number, "bash", "sleep 20")
    found = server.receive()["result"]["structuredContent"]
    assert found["outcome"] == "unavailable" and found["error"]["retry_after_ms"] > 0 and found["error"]["retryable"], found
    server.process.stdin.close()
    outcomes = [found["outcome"]]
    try:
        while True:
            outcomes.append(server.receive()["result"]["structuredContent"]["outcome"])
    except EOFError:
        pass
    assert server.process.wait(PATIENCE_S) == 0
    server.alarm.cancel()
    assert outcomes.count("cancelled") + outcomes.count("unavailable") == total, {o: outcomes.count(o) for o in outcomes}


def attack_cancel_while_queued():
    server = Raw()
    server.is_alive()
    cores = os.cpu_count() or 1
    for number in range(cores * 4 + 4):
        server.run(number, "bash", "sleep 0.7")
    mark = f"{time.time_ns()}.125"
    server.run("queued", "bash", f"sleep {mark}")
    server.cancel("queued")
    for _ in range(cores * 4 + 4):
        assert server.receive()["result"]["structuredContent"]["outcome"] == "completed"
    server.is_alive()
    assert not processes_with(mark)
    server.end()


def attack_unread_log():
    """Nobody reads standard error."""
    server = Raw(log="debug", stderr=subprocess.PIPE)
    server.is_alive()
    for _ in range(40):
        server.write(b"garbage\n" * 100)
    server.is_alive()
    server.end()
    server.process.stderr.close()


def attack_secrets_in_logs():
    server = Raw(log="debug", stderr=subprocess.PIPE)
    server.run(1, "python", "print('s3cr' + 'et-in-output') # s3cret-in-code", {"stdin": "s3cret-in-stdin", "variables": {"k": "s3cret-in-variable"}})
    server.answer(1)
    server.run(2, "python", "raise ValueError('s3cret-in-error')")
    server.answer(2)
    server.write(b"s3cret-in-garbage\n")
    server.is_alive()
    server.process.stdin.close()
    log = server.process.stderr.read().decode()
    assert server.process.wait(PATIENCE_S) == 0
    server.alarm.cancel()
    assert "s3cret" not in log, log
    for line in log.splitlines():
        json.loads(line)
    assert "run_ended" in log and "run_began" in log


def mounts():
    with open("/proc/self/mounts") as file:
        return sum(1 for _ in file)


if len(sys.argv) > 2:
    globals().update({n: None for n in list(globals()) if n.startswith("attack_") and sys.argv[2] not in n})
before = mounts()
for name, attack in list(globals().items()):
    if not name.startswith("attack_") or attack is None:
        continue
    label = "attacks: " + name.removeprefix("attack_")
    try:
        attack()
        say("ok", label)
    except Exception as error:
        traceback.print_exc()
        say("FAILED", label, f"{type(error).__name__}: {str(error)[:300]}")
if mounts() == before:
    say("ok", "attacks: no mount is left")
else:
    say("FAILED", "attacks: no mount is left", f"{before} before, {mounts()} after")
sys.exit(1 if results["FAILED"] else 0)
