"""OAuth through the official Python library, for its 1.x and 2.x lines: oauth_python.py ERA, run by oauth.py."""

import asyncio
import contextlib
import importlib
import importlib.metadata
import os
import sys
import traceback
import urllib.parse

from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

era, url = sys.argv[1], os.environ["SERVER_URL"]
version = importlib.metadata.version("mcp")
is_first = version.startswith("1.")
http = importlib.import_module("httpx" if is_first else "httpx2")
CALLBACK = "http://127.0.0.1:3030/callback"
failed = 0


class Storage:
    """Keeps tokens in memory."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """The person at the browser: opens the address and is sent back at once."""

    async def open(self, address):
        async with http.AsyncClient(follow_redirects=False) as browser:
            answer = await browser.get(address)
        assert answer.status_code == 302, answer.text
        self.sent = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(answer.headers["location"]).query))

    async def come_back(self):
        if is_first:
            return self.sent["code"], self.sent.get("state")
        from mcp.shared.auth import AuthorizationCodeResult
        return AuthorizationCodeResult(**self.sent)


@contextlib.asynccontextmanager
async def connected(storage):
    person = Person()
    metadata = OAuthClientMetadata(
        client_name="palisade tests", redirect_uris=[CALLBACK], grant_types=["authorization_code", "refresh_token"],
        response_types=["code"], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(
        server_url=url, client_metadata=metadata, storage=storage, redirect_handler=person.open,
        callback_handler=person.come_back)
    async with contextlib.AsyncExitStack() as stack:
        sender = await stack.enter_async_context(http.AsyncClient(auth=provider, timeout=60))
        streams = streamable_http_client(url, http_client=sender)
        if not is_first:
            from mcp import Client
            client = await stack.enter_async_context(Client(streams, mode=era, cache=None))
            yield client.session
            return
        from mcp import ClientSession
        read, write, *_ = await stack.enter_async_context(streams)
        session = await stack.enter_async_context(ClientSession(read, write))
        await session.initialize()
        yield session


async def check(name, action):
    global failed
    try:
        await action
        print(f"ok python mcp {version} {era} oauth: {name}", flush=True)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        failed += 1
        print(f"FAILED python mcp {version} {era} oauth: {name}: {error!r}", flush=True)


def content(result):
    return result.model_dump(mode="json", by_alias=True)["structuredContent"]


async def run(session):
    found = content(await session.call_tool("run", {"language": "python", "code": "print(6 * 7)"}))
    assert found["outcome"] == "completed" and found["stdout"] == "42\n", found


async def step_up(session, storage):
    assert storage.tokens.scope == "palisade:run", storage.tokens.scope
    opened = content(await session.call_tool("sandbox_open", {}))
    granted = set(storage.tokens.scope.split())
    assert granted == {"palisade:run", "palisade:sandbox"}, granted
    closed = content(await session.call_tool("sandbox_close", {"sandbox_id": opened["sandbox_id"]}))
    assert closed, closed


async def main():
    storage = Storage()
    async with connected(storage) as session:
        await check("registration, authorization with PKCE, and a call", run(session))
        await check("a call that needs another scope steps up", step_up(session, storage))


asyncio.run(main())
sys.exit(1 if failed else 0)
