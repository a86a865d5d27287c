"""Drives ts_sdk.mjs through the checks: typescript.py BINARY NODE FOLDER LINE ERA."""

import asyncio
import contextlib
import itertools
import json
import os
import sys

import checks

binary, node, folder, line, era = sys.argv[1:]
LINE_BYTES_MAX = 64 << 20


class Sdk:
    # JavaScript turns integers beyond 2**53 into doubles before we see them.
    keeps_integers = False

    def __init__(self, process):
        self.process, self.numbers, self.waiting = process, itertools.count(1), {}

    async def listen(self):
        while text := await self.process.stdout.readline():
            said = json.loads(text)
            answer, progress = self.waiting[said["id"]]
            if "progress" in said:
                progress(said["progress"], said.get("message"))
            elif not answer.done():
                if "error" in said:
                    answer.set_exception(RuntimeError(said["error"]))
                else:
                    answer.set_result(said.get("result"))
        for answer, _ in self.waiting.values():
            if not answer.done():
                answer.set_exception(RuntimeError("the client ended"))

    async def ask(self, what, progress=None, began=None, **more):
        number = next(self.numbers)
        answer = asyncio.get_running_loop().create_future()
        self.waiting[number] = (answer, progress)
        await self.say({"do": what, "id": number, "progress": progress is not None, **more})
        if began is not None:
            assert await began, "the program did not start"
            await self.say({"do": "cancel", "of": number})
        return await answer

    async def say(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    async def list_tools(self):
        return (await self.ask("list_tools"))["tools"]

    async def list_resources(self):
        return (await self.ask("list_resources"))["resources"]

    async def read_resource(self, uri):
        return await self.ask("read_resource", uri=uri)

    async def call(self, name, given, progress=None):
        return await self.ask("call", progress=progress, name=name, arguments=given)

    async def call_and_cancel(self, name, given, began):
        try:
            await self.ask("call", began=began, name=name, arguments=given)
        except RuntimeError:
            pass


@contextlib.asynccontextmanager
async def connected(token):
    pipe = asyncio.subprocess.PIPE
    script = __file__.replace("typescript.py", "ts_sdk.mjs")
    environment = {**os.environ, "SERVER_TOKEN": token or ""}
    process = await asyncio.create_subprocess_exec(
        node, script, folder, line, era, binary, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX, env=environment)
    client = Sdk(process)
    listening = asyncio.ensure_future(client.listen())
    yield client
    process.stdin.close()
    await asyncio.wait_for(process.wait(), 10)
    await listening


async def refused():
    async with connected(checks.WRONG_TOKEN) as client:
        await client.ask("version")
        await client.list_tools()


async def main():
    label = f"typescript {line} {era} {checks.transport}"
    async with connected(checks.token) as client:
        found = await asyncio.wait_for(client.ask("version"), 30)
        assert found["server"]["name"] == "palisade", found
        if line == "v2":
            assert found["version"] == ("2025-11-25" if era == "legacy" else "2026-07-28"), found
        await checks.run_all(label, client)
    if checks.url:
        await checks.run_refused(label, refused())


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
