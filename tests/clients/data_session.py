"""A whole session with data through the official Python library: data_session.py BINARY PYTHON.

A large table goes in by link, is explored run by run, comes back as a picture and as a file by link; in the middle
the server is killed and started again on the same port and the same state directory. PYTHON is an interpreter with
pandas and matplotlib.
"""

import asyncio
import base64
import csv
import hashlib
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

from checks import results, say

binary, python = sys.argv[1], sys.argv[2]
CSV_BYTES_MIN = 50 << 20
SEED = 7


def table():
    """A CSV of 50 MB and the sum of its last column."""
    chance = random.Random(SEED)
    rows = ["%d,%s,%d\n" % (number % 365, "group-%02d-%s" % (number % 20, "x" * 20), chance.randrange(1000)) for number in range(20000)]
    block = "".join(rows)
    times = CSV_BYTES_MIN // len(block) + 1
    total = times * sum(int(row.rsplit(",", 1)[1]) for row in rows)
    return ("day,group,amount\n" + block * times).encode(), times * len(rows), total


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    def __init__(self, state, port):
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "PALISADE_STATE_DIR": state, "PALISADE_INTERPRETERS_PYTHON": python,
        }
        command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--no-auth"]
        self.process = subprocess.Popen(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if '"listening"' in line:
                break

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def request(method, url, data=None):
    with urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=120) as answer:
        return answer.read()


class Session:
    """One client; a new one after the server was killed."""

    def __init__(self, url):
        self.url = url

    async def __aenter__(self):
        from mcp import Client
        self.client = Client(self.url, cache=None)
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error):
        try:
            await self.client.__aexit__(*error)
        except Exception:
            pass  # the server may be gone, on purpose

    async def call(self, tool, **given):
        result = await self.client.session.call_tool(tool, given)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def run(self, sandbox, code, **more):
        result = await self.call("run", sandbox_id=sandbox, language="python", code=code, **more)
        found = result["structuredContent"]
        assert found["outcome"] == "completed", found
        return found, result


async def first_half(session, content, rows, total):
    opened = await session.call("sandbox_open", name="data", limits={"memory_mb": 2048, "disk_mb": 512})
    sandbox = opened["structuredContent"]["sandbox_id"]
    link = (await session.call("write_file", sandbox_id=sandbox, path="data/table.csv"))["structuredContent"]
    began = time.perf_counter()
    request("PUT", link["upload_url"], content)
    took = time.perf_counter() - began
    listed = (await session.call("list_files", sandbox_id=sandbox, path="data"))["structuredContent"]
    assert str(len(content)) in json.dumps(listed), listed
    say("ok", "data session: upload by link", f"{len(content) >> 20} MB in {took:.2f} s")
    found, _ = await session.run(sandbox, "import pandas as pd\ntable = pd.read_csv('data/table.csv')\nlen(table)", timeout_ms=120000)
    assert found["value"]["json"] == rows, found["value"]
    explored = [
        ("int(table.amount.sum())", total),
        ("sorted(table.columns)", ["amount", "day", "group"]),
        ("table.group.nunique()", 20),
        ("by_day = table.groupby('day').amount.sum()\nint(by_day.sum())", total),
        ("int(by_day.index.max())", 364),
    ]
    for code, expected in explored:
        found, _ = await session.run(sandbox, code)
        assert found["value"]["json"] == expected, (code, found["value"])
    found, result = await session.run(sandbox, "table.head(3)")
    assert "group-00" in json.dumps(result), found
    say("ok", "data session: explored run by run")
    found, result = await session.run(sandbox, "import matplotlib.pyplot as plt\nby_day.plot(title='amount')\nplt.show()", timeout_ms=120000)
    images = [block for block in result["content"] if block["type"] == "image"]
    assert images and base64.b64decode(images[0]["data"]).startswith(b"\x89PNG"), [block["type"] for block in result["content"]]
    say("ok", "data session: a figure came back as an image")
    found, _ = await session.run(sandbox, "by_day.to_csv('by_day.csv')\nprint('written')")
    artifact = next(file for file in found["artifacts"] if file["path"] == "by_day.csv")
    got = request("GET", artifact["download_url"])
    assert hashlib.sha256(got).hexdigest() == artifact["sha256"] and len(got) == artifact["size_bytes"], artifact
    assert sum(int(row["amount"]) for row in csv.DictReader(io.StringIO(got.decode()))) == total
    say("ok", "data session: download by link")
    return sandbox, artifact["download_url"]


async def second_half(session, sandbox, old_link, total):
    found, _ = await session.run(
        sandbox, "import pandas as pd\nprint('table' in globals())\nint(pd.read_csv('by_day.csv').amount.sum())", timeout_ms=120000)
    assert found["stdout"] == "False\n" and found["value"]["json"] == total, found
    assert any("fresh" in warning for warning in found["warnings"]), found["warnings"]
    say("ok", "data session: after a kill the files are there and the interpreter is said to be fresh")
    assert request("GET", old_link).startswith(b"day,amount"), "links outlive the server"
    found, _ = await session.run(sandbox, "len(pd.read_csv('data/table.csv', usecols=['day']))", timeout_ms=120000)
    closed = await session.call("sandbox_close", sandbox_id=sandbox)
    assert closed["structuredContent"]["closed"] is True, closed
    try:
        request("GET", old_link)
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
    else:
        raise AssertionError("a link to a closed sandbox works")
    say("ok", "data session: it goes on, and closes with its links")


async def main():
    content, rows, total = table()
    # Where every user can enter, and nothing else is.
    state = tempfile.mkdtemp()
    port = free_port()
    server = Server(state, port)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        async with Session(url) as session:
            sandbox, link = await first_half(session, content, rows, total)
            # In the middle of a run.
            running = asyncio.ensure_future(session.run(sandbox, "import time\ntime.sleep(60)"))
            await asyncio.sleep(1)
            server.kill()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        server = Server(state, port)
        async with Session(url) as session:
            await second_half(session, sandbox, link, total)
    finally:
        server.process.terminate()
        server.process.wait(60)
        shutil.rmtree(state, ignore_errors=True)


try:
    asyncio.run(asyncio.wait_for(main(), 400))
except Exception as error:
    traceback.print_exc()
    say("FAILED", "data session", f"{type(error).__name__}: {str(error)[:300]}")
sys.exit(1 if results["FAILED"] else 0)
