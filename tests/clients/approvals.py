"""Approvals through the official Python library, for its 1.x and 2.x lines: approvals.py BINARY ERA.

The policy asks the caller, so the library shows the form to its callback; over stdio, and over HTTP when a server is
given (served.py with the same environment). PALISADE_POLICY_FOLDER and PALISADE_POLICY_BIND are set by run.sh.
"""

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys

import checks

binary, era = sys.argv[1], sys.argv[2]
version = importlib.metadata.version("mcp")
is_first = version.startswith("1.")
types = importlib.import_module("mcp.types")
LABEL = f"python mcp {version} {era} {checks.transport} approvals"


class Person:
    """Answers the form as it is told to, and keeps what it was shown."""

    def __init__(self):
        self.action, self.content, self.shown = "cancel", None, []

    async def asked(self, _context, params):
        self.shown.append(params.message)
        schema = getattr(params, "requestedSchema", None) or params.requested_schema
        field = schema["properties"]["decision"]
        assert schema["required"] == ["decision"] and field["enum"] == ["approve", "deny"], schema
        assert "default" not in field, schema
        return types.ElicitResult(action=self.action, content=self.content)


@contextlib.asynccontextmanager
async def connected(person):
    async with contextlib.AsyncExitStack() as stack:
        streams = await transport(stack)
        if not is_first:
            from mcp import Client
            client = Client(streams, mode=era, cache=None, elicitation_callback=person.asked)
            yield await stack.enter_async_context(client)
            return
        from mcp import ClientSession
        read, write, *_ = await stack.enter_async_context(streams)
        session = await stack.enter_async_context(ClientSession(read, write, elicitation_callback=person.asked))
        await session.initialize()
        yield session


async def transport(stack):
    if checks.url is None:
        from mcp import StdioServerParameters
        server = StdioServerParameters(command=binary, args=["mcp"], env={**os.environ, "PALISADE_LOG": "warn"})
        if is_first:
            from mcp.client.stdio import stdio_client
            return stdio_client(server)
        return server
    from mcp.client.streamable_http import streamable_http_client
    http = importlib.import_module("httpx" if is_first else "httpx2")
    headers = {"Authorization": f"Bearer {checks.token}"}
    sender = await stack.enter_async_context(http.AsyncClient(headers=headers, timeout=60))
    return streamable_http_client(checks.url, http_client=sender)


def approvals(*arguments):
    ended = subprocess.run([binary, "approvals", *arguments], capture_output=True, text=True, check=True)
    return ended.stdout


async def call(client, word):
    result = await client.call_tool("run", {"language": "bash", "code": f"echo {word}"})
    return result.model_dump(mode="json", by_alias=True)["structuredContent"]


async def approved(client, person, word):
    person.action, person.content = "accept", {"decision": "approve"}
    found = await call(client, word)
    assert found["outcome"] == "completed" and found["stdout"] == f"{word}\n", found
    assert f"echo {word}" in person.shown[-1], person.shown
    asked = len(person.shown)
    await call(client, word)
    assert len(person.shown) == asked + 1, "an answer lets one call pass"


async def denied(client, person, word):
    person.action, person.content = "accept", {"decision": "deny"}
    found = await call(client, word)
    assert found["error"]["code"] == "approval_denied", found


async def unclear(client, person, word):
    person.action, person.content = "accept", {"decision": "deny"}
    for action, content in (("decline", None), ("cancel", None), ("accept", {})):
        person.action, person.content = action, content
        found = await call(client, word)
        assert found["error"]["code"] == "approval_required" and found["error"]["retryable"], found
    identity = found["error"]["approval_id"]
    assert json.loads(approvals("show", identity, "--json"))["state"] == "pending"
    approvals("approve", identity)
    found = await call(client, word)
    assert found["outcome"] == "completed" and found["stdout"] == f"{word}\n", found


async def check(name, action):
    try:
        async with asyncio.timeout(checks.CHECK_S):
            await action
        checks.say("ok", f"{LABEL}: {name}")
    except Exception as error:  # noqa: BLE001
        import traceback
        traceback.print_exc()
        checks.say("FAILED", f"{LABEL}: {name}", repr(error))


async def main():
    person, mark = Person(), os.getpid()
    async with connected(person) as client:
        await check("a form that says approve lets one call pass", approved(client, person, f"a{mark}"))
        await check("a form that says deny refuses the call", denied(client, person, f"b{mark}"))
        await check("a form without a choice leaves the call to the operator", unclear(client, person, f"c{mark}"))


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
