"""What every client must see, whichever library it uses and whichever era it speaks.

A client is an object with the coroutines list_tools, call, call_and_cancel, list_resources and read_resource that
give plain dicts as they are on the wire. Results are printed one per line: `ok`, `FAILED` or `SKIPPED`, then the name.
"""

import asyncio
import base64
import hashlib
import json
import os
import pathlib
import time
import tomllib
import traceback

results = {"ok": 0, "FAILED": 0, "SKIPPED": 0}
# Of a server over HTTP (served.py); without one a client starts its own over stdio.
url, token = os.environ.get("SERVER_URL"), os.environ.get("SERVER_TOKEN")
transport = "http" if url else "stdio"
# The first run of a compiled language compiles its libraries too.
CHECK_S = 120
WRONG_TOKEN = "plsd_" + "0" * 64


def say(verdict, name, reason=""):
    results[verdict] += 1
    print(f"{verdict} {name}" + (f": {reason}" if reason else ""), flush=True)


def processes_with(marker):
    """Processes of this machine whose command line has the marker."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(int(pid))
    return found


async def until(condition, seconds=5.0):
    """Waits for a condition; whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def text_of(result):
    blocks = result["content"]
    assert len(blocks) == 1 and blocks[0]["type"] == "text", blocks
    return blocks[0]["text"]


async def python(client, code, **more):
    return await client.call("run", {"language": "python", "code": code, **more})


def expect(result, outcome):
    found = result["structuredContent"]
    assert found["outcome"] == outcome, found
    assert bool(result.get("isError")) == (outcome not in ("completed", "running")), result
    return found


async def check_list(client):
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert list(tools) == sorted(tools), list(tools)
    assert {"run", "get_capabilities"} <= set(tools), list(tools)
    assert "python" in tools["run"]["inputSchema"]["properties"]["language"]["enum"]
    for tool in tools.values():
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["outputSchema"]["type"] == "object"
        # Only an installation reaches something outside, the package mirror.
        assert tool["annotations"]["openWorldHint"] is (tool["name"] == "install_packages")


async def check_hello(client):
    result = await python(client, "print('hello')\n6 * 7")
    found = expect(result, "completed")
    assert found["stdout"] == "hello\n" and found["exit_code"] == 0, found
    assert found["value"]["json"] == 42, found
    assert found["run_id"].startswith("run_") and len(found["run_id"]) >= 30, found
    assert text_of(result) == "hello\nvalue: 42", text_of(result)


async def check_failure(client):
    result = await python(client, "x = 1\nraise ValueError('wrong')")
    found = expect(result, "failed")
    assert found["error"]["line"] == 2 and "wrong" in found["error"]["message"], found
    assert "ValueError: wrong" in text_of(result) and "line 2" in text_of(result)


async def check_timeout(client):
    found = expect(await python(client, "import time\nprint('a', flush=True)\ntime.sleep(60)", timeout_ms=400), "timed_out")
    assert found["stdout"] == "a\n" and "timeout_ms" in found["error"]["remedy"], found


async def check_variables(client):
    given = {"n": None, "t": True, "d": {"k": [1, 2.5, "ü"]}, "big": 2**70 if client.keeps_integers else 2**50}
    found = expect(await python(client, "print(repr([n, t, d, big]))", variables=given), "completed")
    assert found["stdout"].strip() == repr(list(given.values())), found


async def check_inputs_args_stdin(client):
    code = "import sys\nprint(open('d/a.txt').read(), open('b.bin', 'rb').read(), sys.stdin.read(), sys.argv[1:])"
    given = [{"path": "d/a.txt", "text": "é"}, {"path": "b.bin", "base64": "AP8="}]
    found = expect(await python(client, code, inputs=given, stdin="in", args=["x", "y z"]), "completed")
    assert found["stdout"] == "é b'\\x00\\xff' in ['x', 'y z']\n", found


async def check_large_inputs(client):
    code = "import hashlib\nprint(hashlib.sha256(open('a', 'rb').read()).hexdigest(), len(open('a', 'rb').read()))\n"
    content = bytes(range(256)) * 12_000
    given = [{"path": "a", "base64": base64.b64encode(content).decode()}]
    found = expect(await python(client, code + "#" * 300_000, inputs=given), "completed")
    assert found["stdout"] == f"{hashlib.sha256(content).hexdigest()} {len(content)}\n", found


async def check_limits(client):
    found = expect(await python(client, "b = bytearray(700 << 20)", limits={"memory_mb": 64}), "out_of_memory")
    assert "memory_mb" in found["error"]["remedy"], found
    found = expect(await python(client, "1", limits={"memory_mb": 10**6}), "completed")
    assert found["clamped"][0]["limit"] == "memory_mb", found


async def check_cut_output(client):
    found = expect(await python(client, "print('a' * 30000 + 'b' * 30000)"), "completed")
    cut = found["truncated"]
    assert (cut["stdout_bytes"], cut["stderr_bytes"]) == (60001, 0), cut
    assert len(found["stdout"]) < 21000 and found["stdout"].startswith("aaa") and found["stdout"].endswith("bbb\n")


async def check_whole_log(client):
    code = "print('a' * 30000 + 'b' * 30000)"
    cut = expect(await python(client, code), "completed")["truncated"]
    assert cut["uri"].startswith("palisade://runs/"), cut
    content = (await client.read_resource(cut["uri"] + "?stream=stdout&offset=0&limit=1000000"))["contents"][0]
    assert content["text"] == "a" * 30000 + "b" * 30000 + "\n", len(content["text"])


async def check_wait(client):
    code = "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')"
    found = expect(await python(client, code, limits={"wait_ms": 200}), "running")
    result = await client.call("wait", {"run_id": found["run_id"]})
    assert expect(result, "completed")["stdout"] == "begun\ndone\n", result


async def check_wait_and_cancel(client):
    marker = f"{time.time_ns()}.25"
    given = {"language": "bash", "code": f"sleep {marker}", "limits": {"wait_ms": 200}}
    found = expect(await client.call("run", given), "running")
    assert await until(lambda: processes_with(marker)), "the program ended with its request"
    expect(await client.call("wait", {"run_id": found["run_id"], "cancel": True}), "cancelled")
    assert not processes_with(marker), "the cancelled program is still there"


async def check_bad_arguments(client):
    for given in (
        {"language": "python", "code": "1", "nonsense": 1},
        {"language": "python", "code": 5},
        {"language": "python"},
        {"language": "python", "code": "1", "timeout_ms": "soon"},
    ):
        result = await client.call("run", given)
        found = expect(result, "refused")
        assert found["error"]["code"] == "bad_arguments" and found["error"]["remedy"], found
    found = expect(await client.call("run", {"language": "cobol", "code": "1"}), "refused")
    assert found["error"]["code"] == "language_unknown", found


async def check_large_code(client):
    found = expect(await python(client, "#" + "x" * 10_000_000), "refused")
    assert found["error"]["code"] == "bad_code", found


async def check_unknown_tool(client):
    try:
        await client.call("no_such_tool", {})
    except Exception as error:
        assert "no_such_tool" in str(error), error
    else:
        raise AssertionError("an unknown tool was answered")


async def check_progress(client):
    seen = []
    code = "import time\nfor i in range(4):\n    print('line', i, flush=True)\n    time.sleep(0.25)"
    result = await client.call("run", {"language": "python", "code": code}, progress=lambda n, text: seen.append((n, text)))
    expect(result, "completed")
    assert len(seen) >= 2, seen
    assert all(a[0] < b[0] for a, b in zip(seen, seen[1:])), seen
    assert "line 0" in "".join(text or "" for _, text in seen), seen


async def check_cancel(client):
    marker = f"{time.time_ns()}.5"
    running = asyncio.ensure_future(client.call_and_cancel(
        "run", {"language": "bash", "code": f"sleep {marker}"}, until(lambda: processes_with(marker))))
    await running
    assert await until(lambda: not processes_with(marker)), "the cancelled program is still there"
    expect(await python(client, "print(1)"), "completed")


async def check_several_at_once(client):
    runs = [python(client, f"import time\ntime.sleep(0.2)\nprint({n})") for n in range(6)]
    for number, result in enumerate(await asyncio.gather(*runs)):
        assert expect(result, "completed")["stdout"] == f"{number}\n"


async def check_capabilities(client):
    result = await client.call("get_capabilities", {})
    found = result["structuredContent"]
    states = {language["name"]: language["state"] for language in found["languages"]}
    assert states["python"] == "working", found["languages"]
    assert found["limits"]["timeout_ms"] == {"default": 30000, "maximum": 600000}, found["limits"]
    assert found["isolation"]["guarantees"]["network_none"]["by"], found["isolation"]
    assert "python" in text_of(result)


async def check_validate(client):
    found = (await client.call("validate_code", {"language": "python", "code": "x = (1,\nimport surely_not_there"}))
    assert not found.get("isError"), found
    wrong = found["structuredContent"]
    assert wrong["valid"] is False and wrong["errors"][0]["line"] in (1, 2), wrong
    fine = await client.call("validate_code", {"language": "bash", "code": "echo $((6*7))"})
    assert fine["structuredContent"]["valid"] is True, fine
    missing = await client.call("validate_code", {"language": "python", "code": "import surely_not_there"})
    assert missing["structuredContent"]["missing_imports"][0]["module"] == "surely_not_there", missing


RUNTIMES = pathlib.Path(__file__).resolve().parents[2] / "runtimes"


def canary(language):
    """The program by which a language proves itself, and what it prints: new languages need no word here."""
    found = tomllib.loads((RUNTIMES / language / "runtime.toml").read_text(encoding="utf-8"))["canary"]
    return found["code"], found["stdout"]


async def check_every_language(client):
    listed = next(tool for tool in await client.list_tools() if tool["name"] == "run")
    for language in listed["inputSchema"]["properties"]["language"]["enum"]:
        code, printed = canary(language)
        result = await client.call("run", {"language": language, "code": code})
        assert expect(result, "completed")["stdout"] == printed, result


async def check_resource(client):
    listed = await client.list_resources()
    assert [one["uri"] for one in listed] == ["palisade://capabilities"], listed
    content = await client.read_resource("palisade://capabilities")
    assert json.loads(content["contents"][0]["text"])["server"]["name"] == "palisade"
    try:
        await client.read_resource("palisade://nothing")
    except Exception:
        return
    raise AssertionError("a resource that does not exist was read")


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


async def run_all(label, client, skipped=()):
    for check in CHECKS:
        name = f"{label}: {check.__name__.removeprefix('check_')}"
        if check.__name__.removeprefix("check_") in skipped:
            say("SKIPPED", name, "this client cannot do it")
            continue
        try:
            await asyncio.wait_for(check(client), CHECK_S)
            say("ok", name)
        except Exception as error:
            traceback.print_exc()
            say("FAILED", name, f"{type(error).__name__}: {str(error)[:300]}")


async def run_refused(label, connect):
    """Somebody without the token is told so: `connect` is a coroutine that must fail."""
    name = f"{label}: refused with a wrong token"
    try:
        await asyncio.wait_for(connect, 60)
    except BaseException as error:
        said = reasons(error)
        is_clear = any(words in said for words in ("401", "Unauthorized", "a bearer token is needed"))
        say("ok" if is_clear else "FAILED", name, "" if is_clear else said[:300])
    else:
        say("FAILED", name, "it was let in")


def reasons(error, known=()):
    """All that an error says, with its causes and the members of a group."""
    inner = [*getattr(error, "exceptions", ()), error.__cause__, error.__context__]
    known = (*known, error)
    return " / ".join([repr(error), *(reasons(one, known) for one in inner if one is not None and one not in known)])
