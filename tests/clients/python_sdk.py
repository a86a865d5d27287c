"""The checks through the official Python library: python_sdk.py BINARY ERA, for its 1.x and 2.x lines; over HTTP
when a server is given (served.py), else over stdio."""

import asyncio
import contextlib
import importlib.metadata
import os
import sys

import checks

binary, era = sys.argv[1], sys.argv[2]
version = importlib.metadata.version("mcp")
is_first = version.startswith("1.")


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Sdk:
    """Both lines behind one face; `session` is theirs."""

    keeps_integers = True

    def __init__(self, session, client=None):
        self.session, self.client = session, client or session

    async def list_tools(self):
        return plain(await self.client.list_tools())["tools"]

    async def list_resources(self):
        return plain(await self.client.list_resources())["resources"]

    async def read_resource(self, uri):
        if is_first:
            from pydantic import AnyUrl
            uri = AnyUrl(uri)
        return plain(await self.client.read_resource(uri))

    async def call(self, name, given, progress=None):
        async def tell(number, _total, text):
            progress(number, text)
        # The session's call: the client of 2.x would check arguments that are meant to be wrong.
        return plain(await self.session.call_tool(name, given, progress_callback=tell if progress else None))

    async def call_and_cancel(self, name, given, began):
        running = asyncio.ensure_future(self.call(name, given))
        assert await began, "the program did not start"
        running.cancel()
        if is_first:
            # This line does not tell the server by itself.
            from mcp import types
            params = types.CancelledNotificationParams(requestId=self.session._request_id - 1, reason="test")
            told = types.CancelledNotification(method="notifications/cancelled", params=params)
            await self.session.send_notification(types.ClientNotification(told))
        try:
            await running
        except asyncio.CancelledError:
            pass


@contextlib.asynccontextmanager
async def connected(token):
    """Yields a client of this library and era, over what the environment says."""
    async with contextlib.AsyncExitStack() as stack:
        streams = await transport(stack, token)
        if not is_first:
            from mcp import Client
            client = await stack.enter_async_context(Client(streams, mode=era, cache=None))
            assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28"), client.protocol_version
            assert client.server_info is None or client.server_info.name == "palisade", client.server_info
            yield Sdk(client.session, client)
            return
        from mcp import ClientSession
        read, write, *_ = await stack.enter_async_context(streams)
        session = await stack.enter_async_context(ClientSession(read, write))
        opened = await session.initialize()
        assert opened.serverInfo.name == "palisade" and opened.protocolVersion == "2025-11-25", opened
        yield Sdk(session)


async def transport(stack, token):
    if checks.url is None:
        from mcp import StdioServerParameters
        server = StdioServerParameters(command=binary, args=["mcp"], env={**os.environ, "PALISADE_LOG": "warn"})
        if is_first:
            from mcp.client.stdio import stdio_client
            return stdio_client(server)
        return server
    from mcp.client.streamable_http import streamable_http_client
    http = importlib.import_module("httpx" if is_first else "httpx2")
    headers = {"Authorization": f"Bearer {token}"}
    sender = await stack.enter_async_context(http.AsyncClient(headers=headers, timeout=60))
    return streamable_http_client(checks.url, http_client=sender)


async def refused():
    async with connected(checks.WRONG_TOKEN) as client:
        await client.list_tools()


async def main():
    label = f"python mcp {version} {era} {checks.transport}"
    async with connected(checks.token) as client:
        await checks.run_all(label, client)
    if checks.url:
        await checks.run_refused(label, refused())


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
