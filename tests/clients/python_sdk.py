"""The checks through the official Python library: python_sdk.py BINARY ERA, for its 1.x and 2.x lines."""

import asyncio
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


async def main():
    from mcp import StdioServerParameters
    environment = {**os.environ, "PALISADE_LOG": "warn"}
    server = StdioServerParameters(command=binary, args=["mcp"], env=environment)
    label = f"python mcp {version} {era}"
    if is_first:
        from mcp import ClientSession
        from mcp.client.stdio import stdio_client
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            opened = await session.initialize()
            assert opened.serverInfo.name == "palisade" and opened.protocolVersion == "2025-11-25", opened
            await checks.run_all(label, Sdk(session))
    else:
        from mcp import Client
        async with Client(server, mode=era, cache=None) as client:
            assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28"), client.protocol_version
            assert client.server_info is None or client.server_info.name == "palisade", client.server_info
            await checks.run_all(label, Sdk(client.session, client))


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
