//! The API for JavaScript and TypeScript, the command for everything else, and the line protocol from C and Go.

use crate::stage::{Stage, program, told};

const JAVASCRIPT: &str = r#"
console.log(JSON.stringify(await tools.x.echo({ a: 1 })), await tools.x.echo({ n: 123456789012345678901234567890n }));
console.log(JSON.stringify(await Promise.all([tools.x.echo({ q: 1 }), tools['odd-server'].echo({ id: 2 })])));
try { await tools.x.fail(); } catch (e) { console.log(e instanceof tools.Error, e.code, e.server, e.tool); }
display(await tools.x.shot());
const both = await tools.x.both({ n: 1 });
if (JSON.stringify(both) !== '{"n":1}' || both.blobs[0].mime !== 'image/png') throw new Error(JSON.stringify(both));
display(both);
console.log((await tools.x.link()).uri, (await tools.find('echo')).length, (await tools.x.structured.raw({})).content.length);
"#;
const JAVASCRIPT_TOLD: &str = "{\"a\":1} { n: 123456789012345678901234567890n }\n[{\"q\":1},{\"id\":2}]\n\
     true tool_error x fail\ndocs://index 5 0";

pub(crate) async fn javascript_calls_with_promises(stage: &Stage) {
    let result = stage.scene().run(program("javascript", JAVASCRIPT)).await;
    assert_eq!(told(&result), JAVASCRIPT_TOLD);
    assert_eq!(result.execution().displays.len(), 2);
}

pub(crate) async fn typescript_calls_with_promises(stage: &Stage) {
    let code = format!("const one: number = 1;\n{JAVASCRIPT}");
    let result = stage.scene().run(program("typescript", &code)).await;
    assert_eq!(told(&result), JAVASCRIPT_TOLD);
}

const KEEPS: &str = r#"
async function double({ n }) { return (await tools.x.echo({ n })).n * 2; }
await tools.save(double, { about: 'Doubles' });
await tools.memory.set('seen', { a: [1, null] });
"#;
const KEPT: &str = r#"
console.log(await tools.saved.double({ n: 21 }), JSON.stringify(await tools.memory.get('seen')), (await tools.saved())[0].about);
console.log(await tools.memory.get('none', 7), await tools.memory.keys(), await tools.memory.delete('seen'), (await tools.memory.keys()).length);
const { total, 0: first } = await tools.find('echo', { servers: 'x' });
console.log(total, first.name, (await tools.describe('x.echo')).tool, (await tools.servers()).length);
console.log((await tools.read('y', 'docs://b')).text, await (await tools.x.link()).read().then((one) => one.text));
console.log(JSON.stringify(await tools.gather(tools.x.echo.later({ a: 1 }), tools.y.echo({ b: 2 }))));
const [text, shot, link, file] = await tools.x.mixed();
console.log(text, shot.mime, link.uri, file.text, (await tools.x.echo({ shot, bytes: Buffer.from('ab'), link })).bytes);
try { await tools.find.echo(); } catch (e) { console.log(e.code, e.server); }
"#;

pub(crate) async fn javascript_and_typescript_have_the_whole_api(stage: &Stage) {
    for language in ["javascript", "typescript"] {
        let scene = stage.scene();
        scene.completes(language, KEEPS).await;
        let told = scene.completes(language, KEPT).await;
        assert_eq!(
            told,
            "42 {\"a\":[1,null]} Doubles\n7 [ 'seen' ] true 0\n1 x.echo echo 5\nread docs://b read docs://index\n\
             [{\"a\":1},{\"b\":2}]\n[1 image/png docs://index a,b YWI=\nunknown_server find",
            "{language}"
        );
    }
}

pub(crate) async fn the_command_reads_finds_and_describes(stage: &Stage) {
    let code = r#"
tools read y docs://b
tools describe x.echo | grep -o '"tool":"[a-z]*"'
tools servers | grep -o '"name":"[a-z-]*"' | sort | tr '\n' ' '
printf ab > f && tools x.echo file@=f n=7
tools x.shot --raw | grep -c image/png
tools y.hidden; echo "status $?"
PALISADE_TOOLS=/nowhere tools servers; echo "status $?"
"#;
    let told = stage.scene().completes("bash", code).await;
    let servers =
        ["mail", "odd-server", "sink", "x", "y"].map(|name| format!("\"name\":\"{name}\" ")).concat();
    assert_eq!(
        told,
        format!(
            "read docs://b\n\"tool\":\"echo\"\n{servers}{{\"file\":\"YWI=\",\"n\":\"7\"}}\n1\nstatus 1\nstatus 3"
        )
    );
}

pub(crate) async fn a_forgotten_promise_is_a_warning(stage: &Stage) {
    let result = stage.scene().run(program("javascript", "tools.x.echo({ a: 1 });")).await;
    told(&result);
    assert!(result.warnings.iter().any(|warning| warning.contains("x.echo")), "{:?}", result.warnings);
}

pub(crate) async fn bash_calls_by_a_command(stage: &Stage) {
    let code = r#"
tools x.echo a=b n:=12345678901234567890
tools x.fail; echo "status $?"
echo '{"k":[1]}' | tools x.structured -
tools x.shot -o shot.png && wc -c < shot.png
tools find echo | wc -l
tools nothing; echo "status $?"
"#;
    let told = stage.scene().completes("bash", code).await;
    assert_eq!(told, "{\"n\":12345678901234567890,\"a\":\"b\"}\nstatus 1\n{\"k\":[1]}\n70\n5\nstatus 2");
}

const C: &str = include_str!("../../../../examples/tools/tools.c");
const GO: &str = include_str!("../../../../examples/tools/tools.go");

pub(crate) async fn c_speaks_the_line_protocol(stage: &Stage) {
    let told = stage.scene().completes("c", C).await;
    let expected = r#"{"id":1,"ok":{"content":[{"type":"text","text":"{\"city\":\"Oslo\"}"}]}}"#;
    assert_eq!(told, expected);
}

pub(crate) async fn go_speaks_the_line_protocol(stage: &Stage) {
    let told = stage.scene().completes("go", GO).await;
    assert_eq!(told, "{\"city\":\"Oslo\"}");
}
