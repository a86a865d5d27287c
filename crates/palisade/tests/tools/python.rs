//! The API for Python.

use crate::stage::{Stage, program, told};

pub(crate) async fn a_call_blocks_and_returns_the_value(stage: &Stage) {
    let scene = stage.scene();
    let result = scene.run(program("python", "print(tools.x.echo(a=1, n=10**30))")).await;
    assert_eq!(told(&result), "{'a': 1, 'n': 1000000000000000000000000000000}");
    let used = result.tools.unwrap();
    assert_eq!((used.calls, used.failed, used.denied, used.by_server["x"]), (1, 0, 0, 1));
    assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    assert_eq!(scene.host.calls(), ["x.echo"]);
}

pub(crate) async fn calls_run_in_parallel_with_and_without_a_loop(stage: &Stage) {
    let code = r#"
import asyncio
a, b = await asyncio.gather(tools.x.f(q=1) if False else tools.x.echo(q=1), tools.y.echo(id=2))
print(a, b, await asyncio.create_task(tools.x.structured(k=[1])))
def plain():
    return tools.gather(tools.x.echo.later(q=1), tools["odd-server"]["echo"].later(id=2))
import threading
t = threading.Thread(target=lambda: print(plain(), tools.odd_server.echo(z=1)))
t.start(); t.join()
"#;
    let told = stage.scene().completes("python", code).await;
    assert_eq!(told, "{'q': 1} {'id': 2} {'k': [1]}\n[{'q': 1}, {'id': 2}] {'z': 1}");
}

pub(crate) async fn errors_say_code_server_tool_and_content(stage: &Stage) {
    let code = r#"
for call in (lambda: tools.x.fail(), lambda: tools.x.hidden(), lambda: tools.x.nothing(), lambda: tools.nobody.f()):
    try: call()
    except tools.Error as e: print(e.code, e.server, e.tool, e.content)
print(tools.x.fail.raw()["isError"])
"#;
    let told = stage.scene().completes("python", code).await;
    assert_eq!(
        told,
        "tool_error x fail [{'type': 'text', 'text': 'it failed'}]\ntool_denied x hidden []\n\
         unknown_tool x nothing []\nunknown_server nobody f []\nTrue"
    );
}

pub(crate) async fn images_and_resources_are_values_and_are_displayed(stage: &Stage) {
    let code = r#"
shot = tools.x.shot()
both = tools.x.both(n=1)
assert both == {"n": 1} and both.blobs[0].data == shot.data
display(both)
print(shot, shot.save("shot.png"), open("shot.png", "rb").read() == shot.data)
display(shot)
link = tools.x.link()
print(link, link.read().text, tools.read("y", "docs://b").text)
"#;
    let result = stage.scene().run(program("python", code)).await;
    let told = told(&result);
    assert!(
        told.starts_with(
            "Blob('image/png', 70 bytes) shot.png True\nLink('x', 'docs://index') read docs://index"
        ),
        "{told}"
    );
    let displays = &result.execution().displays;
    let mimes: Vec<&str> = displays.iter().map(|one| one.kind.mime()).collect();
    assert_eq!(mimes, ["image/png", "image/png"]);
}

pub(crate) async fn forks_threads_and_subprocesses_call(stage: &Stage) {
    let code = r#"
import os, subprocess, sys, threading
print(tools.x.echo(p=0))
child = os.fork()
if child == 0:
    print(tools.x.echo(p=1), flush=True); os._exit(0)
os.waitpid(child, 0)
threads = [threading.Thread(target=lambda: [tools.x.echo(i=i) for i in range(20)]) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(subprocess.run(["tools", "x.echo", "a=b"], capture_output=True, text=True).stdout.strip())
"#;
    let scene = stage.scene();
    let result = scene.run(program("python", code)).await;
    assert_eq!(told(&result), "{'p': 0}\n{'p': 1}\n{\"a\":\"b\"}");
    assert_eq!(result.tools.unwrap().calls, 163);
}

pub(crate) async fn functions_and_memory_outlive_the_run(stage: &Stage) {
    let scene = stage.scene();
    let save = r#"
def double(n):
    "Doubles a number by a tool."
    return tools.x.echo(n=n)["n"] * 2
tools.save(double)
tools.memory["seen"] = {"a": [1, None]}
"#;
    scene.completes("python", save).await;
    let used =
        "print(tools.saved.double(21), tools.memory['seen'], tools.saved()[0]['about'], 'x' in tools.memory)";
    let told = scene.completes("python", used).await;
    assert_eq!(told, "42 {'a': [1, None]} Doubles a number by a tool. False");
}

pub(crate) async fn a_call_that_nothing_joins_is_a_warning(stage: &Stage) {
    let result = stage.scene().run(program("python", "tools.x.echo.later(a=1)\nprint('done')")).await;
    assert_eq!(told(&result), "done");
    assert!(result.warnings.iter().any(|warning| warning.contains("x.echo")), "{:?}", result.warnings);
}

pub(crate) async fn a_run_without_access_has_no_tools(stage: &Stage) {
    let scene = stage.scene();
    let mut request =
        program("python", "import os; print('tools' in dir(__builtins__), 'PALISADE_TOOLS' in os.environ)");
    request.access.clear();
    let result = scene.run(request).await;
    assert_eq!((told(&result).as_str(), result.tools), ("False False", None));
}

pub(crate) async fn tools_are_found_described_and_listed(stage: &Stage) {
    let code = r#"
found = tools.find("echo", servers=["x", "mail"])
print([tool["name"] for tool in found], found.total, found.more, sorted(found[0]))
print([tool["name"] for tool in tools.find("echo", servers="y", limit=1)])
about = tools.describe("x.echo")
print(about["tool"], about["access"], about == tools.describe("x", "echo"))
print(sorted(server["name"] for server in tools.servers()))
"#;
    let told = stage.scene().completes("python", code).await;
    assert_eq!(
        told,
        "['x.echo', 'mail.echo'] 2 0 ['about', 'access', 'effect', 'name', 'signature']\n['y.echo']\n\
         echo allow True\n['mail', 'odd-server', 'sink', 'x', 'y']"
    );
}

pub(crate) async fn reserved_and_odd_names_are_reached_by_brackets(stage: &Stage) {
    let code = r#"
for name in ("find", "describe", "servers", "read", "save", "saved", "memory", "gather", "Error"):
    try: tools[name]["echo"](a=1)
    except tools.Error as e: assert (e.code, e.server, e.tool) == ("unknown_server", name, "echo"), e
print(tools.x.echo(self=1, args=[2], named=3), tools.x.echo({"odd key": 4}), tools["odd-server"].echo.raw(a=1)["content"][0]["text"])
"#;
    let told = stage.scene().completes("python", code).await;
    assert_eq!(told, "{'self': 1, 'args': [2], 'named': 3} {'odd key': 4} {\"a\":1}");
}

pub(crate) async fn several_blocks_are_a_list_of_values(stage: &Stage) {
    let code = r#"
text, shot, link, file = tools.x.mixed()
print(text, shot.mime, link.uri, file.mime, file.text, file.uri, bytes(shot)[:4])
print(tools.x.echo(picture=shot, bytes=b"ab", link=link)["bytes"])
for bad in (float("nan"), object()):
    try: tools.x.echo(a=bad)
    except (TypeError, ValueError) as e: print(type(e).__name__)
print(tools.x.echo(a=1))
"#;
    let told = stage.scene().completes("python", code).await;
    assert_eq!(
        told,
        "[1 image/png docs://index text/csv a,b docs://a b'\\x89PNG'\nYWI=\nValueError\nTypeError\n{'a': 1}"
    );
}

pub(crate) async fn calls_in_a_loop_fail_and_are_cancelled_alone(stage: &Stage) {
    let code = r#"
import asyncio
async def main():
    slow = asyncio.ensure_future(tools.x.slow())
    results = await asyncio.gather(tools.x.fail(), tools.x.echo(a=1), return_exceptions=True)
    print(results[0].code, results[1], await tools.gather(tools.y.echo(b=1), tools.y.echo(b=2)))
    slow.cancel()
    try: await slow
    except asyncio.CancelledError: print("cancelled")
    print(await tools.x.echo(a=2))
asyncio.run(main())
asyncio.run(main())
"#;
    let scene = stage.scene();
    let told = scene.completes("python", code).await;
    let once = "tool_error {'a': 1} [{'b': 1}, {'b': 2}]\ncancelled\n{'a': 2}";
    assert_eq!(told, format!("{once}\n{once}"));
    assert_eq!(scene.host.cancelled(), 2);
}
