"""The checks through the FastMCP client: fastmcp_client.py BINARY ERA; over HTTP when a server is given (served.py)."""

import asyncio
import importlib.metadata
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

import checks

binary, era = sys.argv[1], sys.argv[2]


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Sdk:
    keeps_integers = True

    def __init__(self, client):
        self.client = client

    async def list_tools(self):
        return [plain(tool) for tool in await self.client.list_tools()]

    async def list_resources(self):
        return [plain(resource) for resource in await self.client.list_resources()]

    async def read_resource(self, uri):
        return {"contents": [plain(content) for content in await self.client.read_resource(uri)]}

    async def call(self, name, given, progress=None):
        async def tell(number, _total, text):
            progress(number, text)
        return plain(await self.client.call_tool_mcp(name, given, progress_handler=tell if progress else None))

    async def call_and_cancel(self, name, given, began):
        running = asyncio.ensure_future(self.call(name, given))
        assert await began, "the program did not start"
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            pass


def client(token):
    if checks.url:
        transport = StreamableHttpTransport(checks.url, auth=token)
    else:
        transport = StdioTransport(binary, ["mcp"], env={**os.environ, "PALISADE_LOG": "warn"}, keep_alive=False)
    return Client(transport, mode=era, timeout=60)


async def refused():
    async with client(checks.WRONG_TOKEN) as other:
        await other.list_tools()


async def main():
    label = f"fastmcp {importlib.metadata.version('fastmcp')} {era} {checks.transport}"
    async with client(checks.token) as own:
        assert own.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28"), own.protocol_version
        await checks.run_all(label, Sdk(own))
    if checks.url:
        await checks.run_refused(label, refused())


asyncio.run(main())
sys.exit(1 if checks.results["FAILED"] else 0)
