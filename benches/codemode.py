#!/usr/bin/env python3
"""What code mode costs and saves, with real MCP servers of other makers.

    benches/codemode.py [--binary PATH] [--out DIR] [--rounds N] [--runs N] [--only PART ...]

Needs the servers that tests/upstreams/install.sh installs. Parts:

- `calls`: everything.echo 1,000 times, one after the other and 16 at a time, by a program in a run and by a direct client of
  a second process of the server, in turns.
- `runs`: a run of a server without tool servers (twice), of one with some that the run does not ask for, and of one whose run
  asks for them, in turns.
- `search`: `find_tools` over 10,000 tools of one server, the time and the memory to load them, and the size of the list of
  tools beside that without any.
- `tokens`: the definitions of the real servers beside what code mode adds to the list of tools.
- `task`: examples/tools/survey.py in one run beside the same calls by a direct client, and with an image.

Tokens are counted by `js-tiktoken` (o200k_base). All samples are kept in DIR/results.json.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mcp_stdio

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERVERS = os.path.join(ROOT, "target/upstreams")
NODE = "/usr/bin/node"
CALLS = 1000
IN_FLIGHT = 16
# A principal makes at most 6,000 calls a minute, and a round makes 2,000.
ROUNDS_A_MINUTE = 2
TOOLS_MANY = 10_000
SEARCHES = 300
COMMITS = 20

NESTED = """
import json, time
echo = tools.everything.echo
echo(message="x")
samples, begun = [], time.perf_counter()
for _ in range(COUNT - 1):
    at = time.perf_counter()
    echo(message="x")
    samples.append((time.perf_counter() - at) * 1e6)
print(json.dumps({"each_us": samples, "all_ms": (time.perf_counter() - begun) * 1e3 * COUNT / (COUNT - 1)}))
"""

NESTED_AT_ONCE = """
import json, time
from collections import deque
later, flying = tools.everything.echo.later, deque()
tools.everything.echo(message="x")
begun = time.perf_counter()
for _ in range(COUNT - 1):
    if len(flying) == WIDTH: flying.popleft().result()
    flying.append(later(message="x"))
while flying: flying.popleft().result()
print(json.dumps({"all_ms": (time.perf_counter() - begun) * 1e3 * COUNT / (COUNT - 1)}))
"""

# The upstream with many tools.
MANY = '''
import json, sys
COUNT, PAGE = int(sys.argv[1]), 200
VERBS = "list create update delete search get merge export import sync render watch".split()
NOUNS = "issue repository invoice calendar message dashboard customer deployment image document ticket pipeline".split()
def tool(n):
    verb, noun = VERBS[n % 12], NOUNS[n // 12 % 12]
    text = lambda about: {"type": "string", "description": about}
    return {"name": f"{verb}_{noun}_{n}", "annotations": {"readOnlyHint": True},
        "description": f"{verb}s a {noun} of the account number {n}. Takes filters, sorts by date and returns pages with a cursor.",
        "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": text("The identifier of the object"),
            "cursor": text("Where the last page ended"), f"{noun}_filter": text("A filter")}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, params, answer = asked["method"], asked.get("params") or {}, {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "many", "version": "1"}}
    elif method == "tools/list":
        at = int(params.get("cursor") or 0)
        answer["result"] = {"tools": [tool(n) for n in range(at, min(at + PAGE, COUNT))]}
        if at + PAGE < COUNT: answer["result"]["nextCursor"] = str(at + PAGE)
    else:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    print(json.dumps(answer), flush=True)
'''

COUNT_TOKENS = """
const { getEncoding } = require('js-tiktoken');
const encoding = getEncoding('o200k_base');
const texts = JSON.parse(require('fs').readFileSync(0));
console.log(JSON.stringify(texts.map((text) => encoding.encode(text, [], []).length)));
"""


def command_of(name, *args):
    """The command of a real server."""
    program = {"git": "py/bin/mcp-server-git", "time": "py/bin/mcp-server-time", "fetch": "py/bin/mcp-server-fetch"}.get(name)
    return [os.path.join(SERVERS, program or f"js/node_modules/.bin/mcp-server-{name}"), *args]


class Direct:
    """A client of one server, over its standard streams: one object a line, nothing in between."""

    def __init__(self, command, env=None):
        environment = {**mcp_stdio.ENVIRONMENT, **(env or {})}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.number = 0
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.request("initialize", hello)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method, params):
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def receive(self):
        while True:
            answer = json.loads(self.process.stdout.readline())
            if "method" not in answer:
                return answer

    def request(self, method, params):
        number = self.send(method, params)
        while (answer := self.receive())["id"] != number:
            pass
        return answer["result"]

    def call(self, tool, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def tools(self):
        return self.request("tools/list", {})["tools"]

    def sequential(self):
        samples, begun = [], time.perf_counter()
        for _ in range(CALLS):
            at = time.perf_counter()
            self.call("echo", message="x")
            samples.append((time.perf_counter() - at) * 1e6)
        return {"each_us": samples, "all_ms": (time.perf_counter() - begun) * 1e3}

    def at_once(self):
        begun, sent, heard = time.perf_counter(), 0, 0
        while heard < CALLS:
            while sent < CALLS and sent - heard < IN_FLIGHT:
                self.send("tools/call", {"name": "echo", "arguments": {"message": "x"}})
                sent += 1
            self.receive()
            heard += 1
        return {"all_ms": (time.perf_counter() - begun) * 1e3}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def section(name, command, env=None):
    """A server in the configuration. The programs of the benchmark run without the wall, as the direct client's do."""
    text = f'[tools.servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n'
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (env or {}).items())
    return text + f'env = {{ {pairs} }}\nwall = "none"\nallow = ["*"]\n'


class Palisade(mcp_stdio.Server):
    """`palisade mcp` with that configuration."""

    def __init__(self, binary, config=""):
        self.folder = tempfile.TemporaryDirectory(prefix="palisade-bench-config-")
        os.mkdir(os.path.join(self.folder.name, "palisade"), 0o755)
        with open(os.path.join(self.folder.name, "palisade", "palisade.toml"), "w", encoding="utf-8") as file:
            file.write(config)
        usual = dict(mcp_stdio.ENVIRONMENT)
        mcp_stdio.ENVIRONMENT["XDG_CONFIG_HOME"] = self.folder.name
        try:
            super().__init__(binary)
        finally:
            mcp_stdio.ENVIRONMENT = usual

    def within(self, code, **options):
        result = self.run(code, timeout_ms=120000, **options)
        if result["outcome"] != "completed":
            raise RuntimeError(f"the run ended {result}")
        return json.loads(result["stdout"])

    def call(self, tool, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def tools(self):
        return self.request("tools/list", {})["tools"]

    def resident_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(next(line for line in file if line.startswith("VmRSS:")).split()[1])


def tokens(texts):
    """How many tokens each text has."""
    script = subprocess.run(
        [NODE, "-e", COUNT_TOKENS], cwd=os.path.join(SERVERS, "js"), input=json.dumps(texts).encode(), capture_output=True, check=True
    )
    return json.loads(script.stdout)


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def calls(arguments):
    """everything.echo, nested and directly, in turns."""
    command = command_of("everything")
    direct, nested = Direct(command), Palisade(arguments.binary, section("everything", command))
    access = {"access": ["everything"]}
    one, many = NESTED.replace("COUNT", "50"), str(CALLS)
    nested.within(one, **access)
    direct.sequential()
    found = {"direct": [], "nested": [], "direct_at_once": [], "nested_at_once": []}
    for number in range(arguments.rounds):
        if number and number % ROUNDS_A_MINUTE == 0:
            time.sleep(61)
        at_once = NESTED_AT_ONCE.replace("COUNT", many).replace("WIDTH", str(IN_FLIGHT))
        sides = [
            ("direct", direct.sequential),
            ("nested", lambda: nested.within(NESTED.replace("COUNT", many), **access)),
            ("direct_at_once", direct.at_once),
            ("nested_at_once", lambda: nested.within(at_once, **access)),
        ]
        for name, side in sides if number % 2 == 0 else reversed(sides):
            found[name].append(side())
    direct.close()
    nested.close()
    p50 = {side: statistics.median(one for round in found[side] for one in round["each_us"]) for side in ("direct", "nested")}
    whole = {side: statistics.median(round["all_ms"] for round in rounds) for side, rounds in found.items()}
    print(f"echo p50: direct {p50['direct']:.0f} us, nested {p50['nested']:.0f} us (target 400)")
    print(f"1,000 one after the other: direct {whole['direct']:.0f} ms, nested {whole['nested']:.0f} ms (target 450)")
    print(f"1,000, 16 at a time: direct {whole['direct_at_once']:.0f} ms, nested {whole['nested_at_once']:.0f} ms (target 200)")
    return {"samples": found, "p50_us": p50, "all_ms": whole}


def runs(arguments):
    """Runs without tools, in turns."""
    config = section("everything", command_of("everything"))
    sides = {"plain": Palisade(arguments.binary), "offered": Palisade(arguments.binary, config)}
    sides |= {"granted": Palisade(arguments.binary, config), "again": Palisade(arguments.binary)}
    timed = {name: server.timed_ms for name, server in sides.items()}
    timed["granted"] = lambda: sides["granted"].timed_ms(access=["everything"])
    samples = mcp_stdio.in_turns(timed, arguments.runs, 20, 0.05)
    for server in sides.values():
        server.close()
    p50 = {name: statistics.median(values) for name, values in samples.items()}
    print("run p50: " + ", ".join(f"{name} {value:.2f} ms" for name, value in p50.items()))
    return {"samples_ms": samples, "p50_ms": p50}


def search(arguments):
    """10,000 tools: loaded, searched, and not in the list."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(MANY)
        script.flush()
        config = section("many", ["/usr/bin/python3", script.name, str(TOOLS_MANY)])
        few = Palisade(arguments.binary, section("many", ["/usr/bin/python3", script.name, "1"]))
        few.call("find_tools", words="warm up")
        first = Palisade(arguments.binary, config)
        before = first.tools()
        first.call("find_tools", words="list issue")
        state = first.state
        after = first.tools()
        first.process.stdin.close()
        first.process.wait(timeout=30)
        # Another server of the same state directory finds the definitions there.
        second = Palisade(arguments.binary, config)
        second.process.stdin.close()
        second.process.wait(timeout=30)
        second.state = state
        second = reopened(second, arguments.binary)
        resident_before = second.resident_kb()
        begun = time.perf_counter()
        second.call("find_tools", words="warm up")
        load_ms = (time.perf_counter() - begun) * 1e3
        memory_kb = second.resident_kb() - resident_before
        verbs, nouns = "list create update merge export sync".split(), "issue invoice calendar customer ticket pipeline".split()
        samples, base = [], []
        for number in range(SEARCHES):
            words = f"{verbs[number % 6]} the {nouns[number // 6 % 6]} with a filter"
            for server, kept in ((second, samples), (few, base)):
                begun = time.perf_counter()
                server.call("find_tools", words=words)
                kept.append((time.perf_counter() - begun) * 1e3)
        lists = {"one": few.tools(), "before": before, "after": after}
        sizes = dict(zip(lists, tokens([shown(one) for one in lists.values()])))
        few.close()
        second.close()
    p95 = {"10000": quantile(samples, 0.95), "1": quantile(base, 0.95)}
    print(f"find_tools in 10,000 tools: p50 {statistics.median(samples):.2f} ms, p95 {p95['10000']:.2f} ms (target 5; of one tool {p95['1']:.2f})")
    print(f"loaded and searched first in {load_ms:.0f} ms (target 300), {memory_kb / 1024:.1f} MB (target 40)")
    print(f"list of tools: {sizes['one']} tokens with 1 tool, {sizes['after']} with 10,000")
    return {"samples_ms": samples, "base_ms": base, "load_ms": load_ms, "memory_kb": memory_kb, "list_tokens": sizes}


def reopened(server, binary):
    """Starts the server again over its state directory and configuration."""
    environment = {**mcp_stdio.ENVIRONMENT, "XDG_CONFIG_HOME": server.folder.name}
    server.process = subprocess.Popen(
        [binary, "--state-dir", server.state.name, "mcp"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    server.request("initialize", hello)
    server.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return server


def shown(tools):
    """A list of tools as a model gets it."""
    kept = ("name", "description", "inputSchema")
    listed = [{key: tool[key] for key in kept if key in tool} for tool in tools]
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False)


def definitions(arguments):
    """The definitions of the real servers, beside what code mode adds to the list."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"filesystem": [folder], "time": ["--local-timezone", "UTC"]}
        names = [
            name
            for name in ("everything", "filesystem", "memory", "sequential-thinking", "git", "time", "fetch")
            if os.path.exists(command_of(name)[0])
        ]
        commands = {name: command_of(name, *given.get(name, [])) for name in names}
        listed, config = {}, ""
        for name, command in commands.items():
            client = Direct(command)
            listed[name] = client.tools()
            client.close()
            config += section(name, command)
        without, with_servers = Palisade(arguments.binary), Palisade(arguments.binary, config)
        found = with_servers.call("find_tools", words="read a file")["structuredContent"]
        texts = [shown(one) for one in listed.values()] + [shown(without.tools()), shown(with_servers.tools()), json.dumps(found)]
        without.close()
        with_servers.close()
    counted = tokens(texts)
    own, (plain, offered, answer) = dict(zip(names, counted)), counted[-3:]
    total, tools_count = sum(own.values()), sum(map(len, listed.values()))
    added = offered - plain
    print(f"{tools_count} tools of {len(names)} servers: {total} tokens of definitions {own}")
    print(f"code mode adds {added} tokens to the list ({plain} -> {offered}): {100 * (1 - added / total):.1f} % fewer (target 93)")
    print(f"with one answer of find_tools ({answer} tokens): {100 * (1 - (added + answer) / total):.1f} % fewer")
    return {"servers": own, "tools": tools_count, "definitions": total, "list_without": plain, "list_with": offered, "one_search": answer}


def repository(path):
    """One commit for each file, and an image."""
    git = ["git", "-C", path, "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    os.mkdir(path)
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(COMMITS):
        with open(os.path.join(path, f"part_{number}.py"), "w", encoding="utf-8") as file:
            body = "".join(f"    total += {line} * scale\n" for line in range(30))
            file.write(f"def part_{number}(scale):\n    # TODO: handle case {number}\n    total = 0\n{body}    return total\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", f"add part {number}"], check=True)
    import zlib

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(64) for _ in range(3)) for y in range(64))
    head = (64).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    with open(os.path.join(path, "logo.png"), "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Conversation:
    """What a model reads and writes with one call at a time."""

    def __init__(self, listed):
        self.texts, self.pictures, self.calls = [("definitions", shown(listed))], 0, 0

    def call(self, client, tool, **arguments):
        result = client.call(tool, **arguments)
        self.calls += 1
        blocks = result.get("content", [])
        self.pictures += sum(block["type"] == "image" for block in blocks)
        said = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        self.texts += [("call", json.dumps({"name": tool, "arguments": arguments})), ("result", said)]
        return result, said

    def counted(self):
        """Tokens in the context at the end, and those that the model reads over all turns: each call is one more."""
        sizes = tokens([text for _, text in self.texts])
        read, context = 0, sizes[0]
        for place in range(1, len(sizes), 2):
            read += context
            context += sizes[place] + sizes[place + 1]
        return {"calls": self.calls, "context": context, "read_in_all_turns": read + context, "images": self.pictures}


def directly(folder, path):
    """The calls of the survey by a client of the three servers. It reads many files by one call, where that is offered."""
    import re

    files, git = Direct(command_of("filesystem", path)), Direct(command_of("git"))
    memory = Direct(command_of("memory"), {"MEMORY_FILE_PATH": os.path.join(folder, "direct.jsonl")})
    talk = Conversation(files.tools() + git.tools() + memory.tools())
    paths = [line for line in talk.call(files, "search_files", path=path, pattern="**/*.py")[1].splitlines() if line.endswith(".py")]
    talk.call(files, "read_multiple_files", paths=paths)
    log = talk.call(git, "git_log", repo_path=path, max_count=COMMITS)[1]
    for commit in re.findall(r"Commit: '?([0-9a-f]{40})", log):
        talk.call(git, "git_show", repo_path=path, revision=commit)
    names = [os.path.basename(one) for one in paths]
    entities = [{"name": name, "entityType": "file", "observations": [f"handle case {name}"]} for name in names]
    talk.call(memory, "create_entities", entities=entities + [{"name": "Ada", "entityType": "author", "observations": []}])
    talk.call(memory, "create_relations", relations=[{"from": "Ada", "to": name, "relationType": "left work in"} for name in names])
    talk.call(memory, "read_graph")
    plain = talk.counted()
    talk.call(files, "read_media_file", path=os.path.join(path, "logo.png"))
    for client in (files, git, memory):
        client.close()
    return plain, talk.counted()


def task(arguments):
    """One run over three servers, beside the same calls one by one."""
    with open(os.path.join(ROOT, "examples/tools/survey.py"), encoding="utf-8") as file:
        survey = file.read()
    with tempfile.TemporaryDirectory(prefix="palisade-bench-task-") as folder:
        path = os.path.join(folder, "repository")
        repository(path)
        direct, direct_with_image = directly(folder, path)
        memory = {"MEMORY_FILE_PATH": os.path.join(folder, "nested.jsonl")}
        config = section("filesystem", command_of("filesystem", path)) + section("git", command_of("git"))
        server = Palisade(arguments.binary, config + section("memory", command_of("memory"), memory))
        ways = {}
        for name, more in (("run", ""), ("run_with_image", "display(tools.filesystem.read_media_file(path=repository + '/logo.png'))\n")):
            talk = Conversation(server.tools())
            talk.call(server, "find_tools", words="search read files, git log and show, create entities and relations", limit=12)
            given = {"access": ["filesystem", "git", "memory"], "variables": {"repository": path}, "timeout_ms": 60000}
            result, _ = talk.call(server, "run", language="python", code=survey + more, **given)
            if result["structuredContent"]["outcome"] != "completed":
                raise RuntimeError(json.dumps(result))
            ways[name] = {**talk.counted(), "nested_calls": result["structuredContent"]["tools"]["calls"]}
        server.close()
    ways = {"calls_one_by_one": direct, "calls_one_by_one_with_image": direct_with_image, **ways}
    print(f"{'':28} {'calls':>6} {'images':>7} {'context':>9} {'read in all turns':>18}   tokens")
    for name, way in ways.items():
        print(f"{name:28} {way['calls']:6} {way['images']:7} {way['context']:9} {way['read_in_all_turns']:18}")
    return ways


PARTS = {"calls": calls, "runs": runs, "search": search, "tokens": definitions, "task": task}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/palisade"))
    parser.add_argument("--out", default=os.path.join(ROOT, "benches/results/codemode"))
    parser.add_argument("--rounds", type=int, default=6, help="of 2,000 nested calls; two a minute")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(SERVERS, "stamp")):
        raise SystemExit("run tests/upstreams/install.sh first")
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, "results.json")
    kept = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    kept["machine"] = {"kernel": platform.release(), "cores": os.cpu_count(), "python": platform.python_version()}
    for part in arguments.only:
        kept[part] = PARTS[part](arguments)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
