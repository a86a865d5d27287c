"""Agents as people install them: agents.py BINARY CLIENT EXECUTABLE FOLDER, with a server given by served.py.

CLIENT is claude-code, codex or gemini. Each gets a home of its own in FOLDER, is set up by `palisade setup` for stdio
and by its own command for HTTP, and must reach both. No model is asked. Nothing may leave this machine: run.sh gives
them no network at all, and their own switches against updates and telemetry are set as well.
"""

import json
import os
import shutil
import subprocess
import sys
import traceback

import checks

binary, client, executable, folder = sys.argv[1:]
PATIENCE_S = 90
home = os.path.join(folder, f"home-{client}")
workspace = os.path.join(home, "workspace")
wire = os.path.join(home, "wire.jsonl")
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": home,
    "PALISADE_STATE_DIR": os.environ["PALISADE_STATE_DIR"],
    "SERVER_TOKEN": checks.token,
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_TELEMETRY_ENABLED": "false",
    # Gemini talks to no server from a folder that nobody trusts.
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "NO_COLOR": "1",
}


def run(*command):
    """What a command prints; it must succeed."""
    done = subprocess.run(command, cwd=workspace, env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command[1:]}: exit status {done.returncode}: {done.stdout}"
    return done.stdout


def line_of(text, name):
    found = [line for line in text.splitlines() if f"{name}:" in line]
    assert len(found) == 1, text
    return found[0]


def is_connected(name):
    """Whether `mcp list` of Claude Code and Gemini says so."""
    line = line_of(run(executable, "mcp", "list"), name)
    return "Connected" in line and "Disconnected" not in line


class ClaudeCode:
    def add_http(self, name, token):
        run(executable, "mcp", "add", "-s", "user", "--transport", "http", name, checks.url,
            "-H", f"Authorization: Bearer {token}")

    def reaches(self, name):
        return is_connected(name)

    def check_tools_are_asked_for(self):
        script = 'tee -a "$0" | "$1" mcp'
        run(executable, "mcp", "add", "-s", "user", "recorded", "--", "sh", "-c", script, wire, binary)
        assert is_connected("recorded")
        with open(wire) as file:
            methods = [json.loads(line)["method"] for line in file]
        assert methods[0] == "server/discover" and "tools/list" in methods, methods


class Codex:
    def add_http(self, name, token):
        ENVIRONMENT["SERVER_TOKEN"] = token
        run(executable, "mcp", "add", name, "--url", checks.url, "--bearer-token-env-var", "SERVER_TOKEN")

    def reaches(self, name):
        return "run" in self.tools().get(name, ())

    def tools(self):
        """Names of the tools of every server, as its own server for editors gives them."""
        process = subprocess.Popen([executable, "app-server"], cwd=workspace, env=ENVIRONMENT, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        about = {"name": "tests", "title": "tests", "version": "1"}
        asked = [{"id": 1, "method": "initialize", "params": {"clientInfo": about}}, {"method": "initialized"},
                 {"id": 2, "method": "mcpServerStatus/list", "params": {}}]
        try:
            process.stdin.writelines(json.dumps(message) + "\n" for message in asked)
            process.stdin.flush()
            answers = (json.loads(line) for line in process.stdout)
            found = next(answer for answer in answers if answer.get("id") == 2)["result"]["data"]
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)
        return {server["name"]: set(server["tools"]) for server in found}

    def check_all_tools_are_listed(self):
        found = self.tools()["palisade"]
        assert {"run", "get_capabilities", "validate_code"} <= found, found


class Gemini:
    def add_http(self, name, token):
        run(executable, "mcp", "add", "-s", "user", "-t", "http", "-H", f"Authorization: Bearer {token}", name, checks.url)

    def reaches(self, name):
        return is_connected(name)


def begin():
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(workspace)
    return {"claude-code": ClaudeCode, "codex": Codex, "gemini": Gemini}[client]()


def check_stdio(agent):
    run(binary, "setup", client)
    assert agent.reaches("palisade"), "not connected"


def check_http(agent):
    agent.add_http("overhttp", checks.token)
    assert agent.reaches("overhttp"), "not connected"


def check_refused(agent):
    agent.add_http("refused", checks.WRONG_TOKEN)
    assert not agent.reaches("refused"), "it was let in with a wrong token"


agent = begin()
version = run(executable, "--version").split()
version = next(word for word in version if word[0].isdigit())
own = [getattr(type(agent), name) for name in dir(agent) if name.startswith("check_")]
for check in [check_stdio, check_http, *own, check_refused]:
    name = f"{client} {version}: {check.__name__.removeprefix('check_')}"
    try:
        check(agent)
        checks.say("ok", name)
    except Exception as error:
        traceback.print_exc()
        checks.say("FAILED", name, f"{type(error).__name__}: {str(error)[:300]}")
sys.exit(1 if checks.results["FAILED"] else 0)
