#!/usr/bin/env python3
"""What code mode costs and saves, with real MCP servers of other makers.

    benches/codemode.py [--binary PATH] [--out DIR] [--rounds N] [--runs N] [--wall none|own] [--only PART ...]

Needs the servers that tests/upstreams/install.sh installs. Parts:

- `calls`: everything.echo 1,000 times, one after the other and 16 at a time, by a program in a run and by a direct client of
  a second process of the server, in turns, with the processor time of each program. A run has at most 8 calls with one
  server at the same time, so the direct client also makes 8 at a time. The server runs without a wall, as that of the
  direct client does, unless `--wall own` is given.
- `runs`: a run of a server without tool servers (twice), of one with some that the run does not ask for, and of one whose run
  asks for them, in turns.
- `search`: `find_tools` over 10,000 tools of one server, the time and the memory to load them, and the size of the list of
  tools beside that without any.
- `tokens`: the definitions of the real servers, which list them without a network, beside what code mode adds to the list of
  tools.
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
from codemode_servers import MANY, OFFLINE, PROGRAMS, ROOT, SERVERS, Direct, command_of, cpu_ms, section, shown, tokens

CALLS = 1000
IN_FLIGHT = 16
# Of one server. Further calls of a run wait in Palisade.
IN_FLIGHT_OF_SERVER = 8
# A principal makes at most 6,000 calls a minute, and a round makes 2,000.
ROUNDS_A_MINUTE = 2
SETTLE_S = 8
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


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def calls(arguments):
    """everything.echo, nested and directly, in turns."""
    command = command_of("everything")
    direct, nested = Direct(command), Palisade(arguments.binary, section("everything", command, wall=arguments.wall))
    access = {"access": ["everything"]}
    # Both servers compile their code while they are used.
    nested.within(NESTED.replace("COUNT", str(CALLS)), **access)
    direct.sequential(CALLS)
    # A server prepares sandboxes of all languages after its start, by their compilers too.
    time.sleep(SETTLE_S)
    one_by_one = NESTED.replace("COUNT", str(CALLS))
    at_once = NESTED_AT_ONCE.replace("COUNT", str(CALLS)).replace("WIDTH", str(IN_FLIGHT))
    sides = {
        "direct": lambda: direct.sequential(CALLS),
        "nested": lambda: nested.within(one_by_one, **access),
        "direct_8_at_once": lambda: direct.at_once(CALLS, IN_FLIGHT_OF_SERVER),
        "direct_at_once": lambda: direct.at_once(CALLS, IN_FLIGHT),
        "nested_at_once": lambda: nested.within(at_once, **access),
    }
    found = {name: [] for name in sides}
    for number in range(arguments.rounds):
        if number and number % ROUNDS_A_MINUTE == 0:
            time.sleep(61)
        for name in sides if number % 2 == 0 else reversed(sides):
            root = (nested if name.startswith("nested") else direct).process.pid
            before = cpu_ms(root)
            found[name].append(sides[name]())
            found[name][-1]["cpu_ms"] = {program: used - before.get(program, 0) for program, used in cpu_ms(root).items()}
    direct.close()
    nested.close()
    return told(found)


def told(found):
    """Prints what calls took, and the ratio to the direct client, whose time is the server's own and two pipes."""
    p50 = {side: statistics.median(one for round in found[side] for one in round["each_us"]) for side in ("direct", "nested")}
    whole = {side: statistics.median(round["all_ms"] for round in rounds) for side, rounds in found.items()}

    def beside(side, direct, unit, values, target):
        return f"direct {values[direct]:.0f} {unit}, nested {values[side]:.0f} {unit}, {values[side] / values[direct]:.2f} times (target {target})"

    print(f"echo p50: {beside('nested', 'direct', 'us', p50, 400)}")
    print(f"1,000 one after the other: {beside('nested', 'direct', 'ms', whole, 450)}")
    print(f"1,000, 16 at a time: {beside('nested_at_once', 'direct_at_once', 'ms', whole, 200)}")
    print(f"1,000, 8 at a time, as one server gets them: {beside('nested_at_once', 'direct_8_at_once', 'ms', whole, 200)}")
    for side, rounds in found.items():
        names = sorted({name for round in rounds for name in round["cpu_ms"]})
        spent = {name: statistics.median(round["cpu_ms"].get(name, 0) for round in rounds) for name in names}
        print(f"processor time of {side}: " + ", ".join(f"{name} {used:.0f} ms" for name, used in spent.items() if used >= 1))
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


def definitions(arguments):
    """The definitions of the real servers, beside what code mode adds to the list."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"filesystem": [folder], "time": ["--local-timezone", "UTC"]}
        names = [name for name in PROGRAMS if os.path.exists(command_of(name)[0])]
        listed, config = {}, ""
        for name in names:
            command, env = command_of(name, *given.get(name, [])), PROGRAMS[name][1]
            client = Direct([*OFFLINE, *command], env)
            listed[name] = client.tools()
            client.close()
            config += section(name, command, env, wall="own")
        without, with_servers = Palisade(arguments.binary), Palisade(arguments.binary, config)
        found = with_servers.call("find_tools", words="read a file")["structuredContent"]
        texts = [shown(one) for one in listed.values()] + [shown(without.tools()), shown(with_servers.tools()), json.dumps(found)]
        without.close()
        with_servers.close()
    counted = tokens(texts)
    own, (plain, offered, answer) = dict(zip(names, counted)), counted[-3:]
    total, tools_count = sum(own.values()), sum(map(len, listed.values()))
    added = offered - plain
    each = ", ".join(f"{name} {len(listed[name])} tools {own[name]}" for name in names)
    print(f"{tools_count} tools of {len(names)} servers: {total} tokens of definitions ({each})")
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
    parser.add_argument("--wall", choices=("none", "own"), default="none", help="of the server whose calls are measured")
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
