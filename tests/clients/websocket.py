"""The checks over a WebSocket, by the `websockets` library and plain messages: websocket.py ERA, with a server given
by served.py. Then what only a socket can do: end a run by closing, and be turned away."""

import asyncio
import importlib.metadata
import itertools
import json
import sys
import time

from websockets.asyncio.client import connect

import checks

era = sys.argv[1]
VERSION = "2025-11-25" if era == "legacy" else "2026-07-28"
ABOUT = {"name": "websocket", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": ABOUT,
}
MESSAGE_BYTES_MAX = 64 << 20


class Sdk:
    keeps_integers = True

    def __init__(self, socket):
        self.socket, self.numbers, self.waiting, self.progress = socket, itertools.count(1), {}, {}

    async def listen(self):
        async for text in self.socket:
            message = json.loads(text)
            if message.get("method") == "notifications/progress":
                params = message["params"]
                self.progress[params["progressToken"]](params["progress"], params.get("message"))
                continue
            answer = self.waiting.pop(message["id"])
            if answer.done():
                continue
            if "error" in message:
                answer.set_exception(RuntimeError(message["error"]["message"]))
            else:
                answer.set_result(message["result"])

    async def send(self, number, method, params, meta):
        if era != "legacy":
            meta = {**META, **meta}
        params = {**params, "_meta": meta} if meta else params
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps(message))
        return self.waiting[number]

    async def ask(self, method, params, **meta):
        return await (await self.send(next(self.numbers), method, params, meta))

    async def tell(self, method, params):
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def open(self):
        if era == "legacy":
            opening = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": ABOUT}
            found = await self.ask("initialize", opening)
            assert found["protocolVersion"] == VERSION and found["serverInfo"]["name"] == "palisade", found
            await self.tell("notifications/initialized", {})
        else:
            found = await self.ask("server/discover", {})
            assert VERSION in found["supportedVersions"], found

    async def list_tools(self):
        return (await self.ask("tools/list", {}))["tools"]

    async def list_resources(self):
        return (await self.ask("resources/list", {}))["resources"]

    async def read_resource(self, uri):
        return await self.ask("resources/read", {"uri": uri})

    async def call(self, name, given, progress=None):
        meta = {}
        if progress:
            meta["progressToken"] = f"p{next(self.numbers)}"
            self.progress[meta["progressToken"]] = progress
        return await self.ask("tools/call", {"name": name, "arguments": given}, **meta)

    async def call_and_cancel(self, name, given, began):
        number = next(self.numbers)
        await self.send(number, "tools/call", {"name": name, "arguments": given}, {})
        assert await began, "the program did not start"
        await self.tell("notifications/cancelled", {"requestId": number})


def socket(token, **more):
    address = checks.url.replace("http", "ws", 1) + "/ws"
    headers = {"Authorization": f"Bearer {token}"}
    return connect(address, additional_headers=headers, max_size=MESSAGE_BYTES_MAX, **more)


async def refused():
    async with socket(checks.WRONG_TOKEN):
        pass


async def foreign_page(label):
    try:
        async with socket(checks.token, origin="http://evil.example"):
            checks.say("FAILED", f"{label}: a foreign page is turned away", "it was let in")
    except Exception as error:
        verdict = "ok" if "403" in str(error) else "FAILED"
        checks.say(verdict, f"{label}: a foreign page is turned away", "" if verdict == "ok" else str(error))


async def close_ends_runs(label):
    marker = f"{time.time_ns()}.5"
    given = {"name": "run", "arguments": {"language": "bash", "code": f"sleep {marker}"}}
    async with socket(checks.token) as other:
        client = Sdk(other)
        listening = asyncio.ensure_future(client.listen())
        await client.open()
        await client.send(99, "tools/call", given, {})
        assert await checks.until(lambda: checks.processes_with(marker)), "the program did not start"
    gone = await checks.until(lambda: not checks.processes_with(marker), 2)
    checks.say("ok" if gone else "FAILED", f"{label}: closing ends the runs within 2 s")
    listening.cancel()


async def main():
    label = f"websockets {importlib.metadata.version('websockets')} {era}"
    async with socket(checks.token, subprotocols=["mcp"]) as own:
        assert own.subprotocol == "mcp", own.subprotocol
        client = Sdk(own)
        listening = asyncio.ensure_future(client.listen())
        await client.open()
        await checks.run_all(label, client)
        await (await own.ping())
    listening.cancel()
    await close_ends_runs(label)
    await foreign_page(label)
    await checks.run_refused(label, refused())


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
