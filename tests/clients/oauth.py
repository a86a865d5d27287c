"""Runs a client through OAuth against a server and an authorization server of its own: oauth.py BINARY NAME COMMAND...

The command finds the server in its environment (SERVER_URL). It must go the whole way: 401, metadata, registration,
authorization with PKCE, token, call. The first authorization is granted `palisade:run` only, so opening a sandbox needs
a second one with more scopes. Prints one line per check, as every client here.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oauth"))

import authorization_server  # noqa: E402
from served import Served  # noqa: E402


def free_port():
    """The resource names the port, so it must be known before the server starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    binary, name, *command = sys.argv[1:]
    issuer = authorization_server.start()
    authorization_server.state.approvals.append("palisade:run")
    port = free_port()
    os.environ.update({
        "PALISADE_OAUTH_ISSUERS": issuer,
        "PALISADE_OAUTH_RESOURCE": f"http://127.0.0.1:{port}/mcp",
        "PALISADE_POLICY_BIND": "oauth:*=open",
    })
    server = Served(binary, "--listen", f"127.0.0.1:{port}")
    status = subprocess.run(command, env={**os.environ, "SERVER_URL": f"http://127.0.0.1:{port}/mcp"}).returncode
    with urllib.request.urlopen(f"{issuer}/counters") as answer:
        counted = json.load(answer)
    flow = {path: counted.get(path, 0) for path in ("/register", "/authorize", "/token")}
    went = flow == {"/register": 1, "/authorize": 2, "/token": 2}
    print(f"{'ok' if went else 'FAILED'} {name} oauth registers once and authorizes twice" + ("" if went else f": {flow}"))
    ended = server.end()
    if ended != 0:
        print(f"FAILED the server of {name}: it ended with {ended}")
    leaked = any("eyJ" in line for line in server.said)
    print(f"{'FAILED' if leaked else 'ok'} {name} oauth leaves no token in the log", flush=True)
    return max(status, 0 if went and ended == 0 and not leaked else 1)


if __name__ == "__main__":
    sys.exit(main())
