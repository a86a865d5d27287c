"""A data task from nothing to a figure in two calls, through the official Python library: figure_from_nothing.py BINARY.

The host's Python needs neither pandas nor matplotlib. `palisade packages prepare` fetches them beforehand, which needs a
package registry; where none answers, the test says so and proves nothing.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import tempfile

from checks import results, say

binary = sys.argv[1]
PACKAGES = ["matplotlib", "pandas"]
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "figure.py")
SETUP_S = 600
# The settings of the registry's ordinary clients.
KEPT = [name for name in os.environ if name.lower().startswith(("pip_", "npm_config_", "http_proxy", "https_proxy", "no_proxy", "ssl_cert"))]


def environment(state):
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "PALISADE_STATE_DIR": state,
        "PALISADE_LOG": "error", **{name: os.environ[name] for name in KEPT},
    }


def prepare(state):
    command = [binary, "packages", "prepare", *PACKAGES]
    done = subprocess.run(command, env=environment(state), cwd="/", capture_output=True, text=True, timeout=SETUP_S)
    if done.returncode:
        say("SKIPPED", "figure from nothing", "no package registry answers here: %s" % done.stderr.strip()[:300])
    return done.returncode == 0


def plain(answer):
    return answer.model_dump(mode="json", by_alias=True)


def check(name, is_fine, found):
    say("ok" if is_fine else "FAILED", name, "" if is_fine else str(found)[:500])


async def task(state):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=binary, args=["mcp"], env=environment(state), cwd="/")
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as client:
        await client.initialize()
        installed = await client.call_tool("install_packages", {"language": "python", "packages": PACKAGES})
        content = plain(installed)["structuredContent"]
        names = {package["name"] for package in content["packages"]}
        check("packages installed", content["status"] == "installed" and {"matplotlib", "pandas", "numpy"} <= names, content)
        with open(EXAMPLE, encoding="utf-8") as file:
            ran = await client.call_tool("run", {"language": "python", "code": file.read()})
        content = plain(ran)["structuredContent"]
        check("program with packages", content["outcome"] == "completed" and content["stdout"] == "12\n", content)
        pictures = [block for block in ran.content if block.type == "image"]
        is_png = bool(pictures) and base64.b64decode(pictures[0].data)[:4] == b"\x89PNG"
        check("figure shown", is_png, [block.type for block in ran.content])


def main():
    state = tempfile.mkdtemp(prefix="palisade-figure-")
    try:
        if prepare(state):
            asyncio.run(task(state))
    finally:
        shutil.rmtree(state, ignore_errors=True)
    return 1 if results["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
