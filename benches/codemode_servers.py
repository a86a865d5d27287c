"""The upstream servers of benches/codemode.py: real ones of other makers, one with many tools, and a direct client."""

import json
import os
import subprocess
import time

import mcp_stdio

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERVERS = os.path.join(ROOT, "target/upstreams")
NODE = "/usr/bin/node"

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


# The program of each real server, below SERVERS, and the values without which it does not start. They are no credentials of
# anything: these servers only list their tools here, without a network.
PROGRAMS = {
    "everything": ("js/node_modules/.bin/mcp-server-everything", {}),
    "filesystem": ("js/node_modules/.bin/mcp-server-filesystem", {}),
    "memory": ("js/node_modules/.bin/mcp-server-memory", {}),
    "sequential-thinking": ("js/node_modules/.bin/mcp-server-sequential-thinking", {}),
    "git": ("py/bin/mcp-server-git", {}),
    "time": ("py/bin/mcp-server-time", {}),
    "fetch": ("py/bin/mcp-server-fetch", {}),
    "playwright": ("js/node_modules/.bin/playwright-mcp", {}),
    "github": ("js/node_modules/.bin/mcp-server-github", {"GITHUB_PERSONAL_ACCESS_TOKEN": "none"}),
    "gitlab": ("js/node_modules/.bin/mcp-server-gitlab", {"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}),
    "slack": ("js/node_modules/.bin/mcp-server-slack", {"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"}),
}
# A network namespace with nothing in it, for the direct client.
OFFLINE = ["/usr/bin/unshare", "--map-root-user", "--net"]


def command_of(name, *args):
    """The command of a real server."""
    return [os.path.join(SERVERS, PROGRAMS[name][0]), *args]


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

    def sequential(self, count):
        samples, begun = [], time.perf_counter()
        for _ in range(count):
            at = time.perf_counter()
            self.call("echo", message="x")
            samples.append((time.perf_counter() - at) * 1e6)
        return {"each_us": samples, "all_ms": (time.perf_counter() - begun) * 1e3}

    def at_once(self, count, width):
        begun, sent, heard = time.perf_counter(), 0, 0
        while heard < count:
            while sent < count and sent - heard < width:
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


def section(name, command, env=None, wall="none"):
    """A server in the configuration. Where calls are measured it runs without the wall, as that of the direct client does."""
    text = f'[tools.servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n'
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (env or {}).items())
    walls = 'wall = "none"\n' if wall == "none" else ""
    return text + f'env = {{ {pairs} }}\n{walls}allow = ["*"]\n'


def tokens(texts):
    """How many tokens each text has."""
    script = subprocess.run(
        [NODE, "-e", COUNT_TOKENS], cwd=os.path.join(SERVERS, "js"), input=json.dumps(texts).encode(), capture_output=True, check=True
    )
    return json.loads(script.stdout)


def shown(tools):
    """A list of tools as a model gets it."""
    kept = ("name", "description", "inputSchema")
    listed = [{key: tool[key] for key in kept if key in tool} for tool in tools]
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False)


def cpu_ms(root):
    """Processor time of a process and its descendants so far, by name of program."""
    parents, spent = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                head, tail = file.read().rsplit(")", 1)
        except OSError:
            continue
        fields = tail.split()
        parents[int(entry)] = int(fields[1])
        spent[int(entry)] = (head.split("(", 1)[1], (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK"))
    found = {}
    for pid, (name, used) in spent.items():
        above = pid
        while above not in (root, 0):
            above = parents.get(above, 0)
        if above == root:
            found[name] = found.get(name, 0) + used
    return found
