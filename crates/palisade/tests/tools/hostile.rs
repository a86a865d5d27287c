//! Programs that misuse the socket, runs that end, and humans that are asked.

use std::time::Duration;

use engine::{Approver, Caller, Choice, Listed, RunRequest};
use policy::{Ask, Principal};
use sandbox::Outcome;

use crate::stage::{Scene, Stage, program, told};

const CONNECT: &str = r#"
import socket, json, os, time
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect("/tmp/.palisade/tools.sock"); return s
def line(s):
    return json.loads(s.makefile("rb").readline())
"#;

fn within(request: RunRequest, timeout_ms: u64) -> RunRequest {
    RunRequest { ask: Ask { timeout_ms: Some(timeout_ms), ..request.ask }, ..request }
}

pub(crate) async fn forged_and_half_lines_harm_only_their_link(stage: &Stage) {
    let code = format!(
        r#"{CONNECT}
s = connect()
s.sendall(b'nonsense\n'); print(line(s)["error"]["code"])
s = connect(); s.sendall(b'{{"id":1,"call":"x.ech')
s = connect(); s.sendall(b'{{"id":1,"call":"y.echo","args":' + b'[' * 1000 + b']' * 1000 + b'}}\n'); print(line(s)["error"]["code"])
s = connect()
try:
    for _ in range(8): s.sendall(b'x' * (1 << 20))
except OSError: pass
print(line(s)["error"]["code"])
print(tools.x.echo(a=1))
"#
    );
    let told = stage.scene().completes("python", &code).await;
    assert_eq!(told, "bad_request\nbad_request\nrequest_too_large\n{'a': 1}");
}

pub(crate) async fn a_flood_ends_at_the_budgets(stage: &Stage) {
    let code = format!(
        r#"{CONNECT}
codes = {{}}
for i in range(1100):
    try: tools.x.echo(i=i); code = "ok"
    except tools.Error as e: code = e.code
    codes[code] = codes.get(code, 0) + 1
print(codes)
"#
    );
    let scene = stage.scene();
    let result = scene.run(program("python", &code)).await;
    assert_eq!(told(&result), "{'ok': 1000, 'calls_exhausted': 100}");
    assert_eq!((result.tools.as_ref().unwrap().calls, result.tools.unwrap().denied), (1000, 100));
}

pub(crate) async fn a_program_that_never_reads_ends_at_its_clock_alone(stage: &Stage) {
    let code = format!(
        r#"{CONNECT}
s = connect()
for i in range(10 ** 6): s.sendall(b'{{"id":%d,"call":"x.big","args":{{"bytes":100000}}}}\n' % i)
"#
    );
    let scene = stage.scene();
    let hostile = scene.run(within(program("python", &code), 1500));
    let other = scene.run(program("python", "print(tools.y.echo(a=1))"));
    let (hostile, other) = tokio::join!(hostile, other);
    assert_eq!((hostile.outcome, told(&other).as_str()), (Outcome::TimedOut, "{'a': 1}"));
    assert!(hostile.tools.unwrap().calls < 200);
}

pub(crate) async fn forks_share_the_budgets_of_their_run(stage: &Stage) {
    let code = r#"
import os
for child in range(8):
    if os.fork() == 0:
        for i in range(200):
            try: tools.x.echo(i=i)
            except tools.Error: pass
        os._exit(0)
for child in range(8): os.wait()
"#;
    let result = stage.scene().run(program("python", code)).await;
    told(&result);
    let used = result.tools.unwrap();
    assert_eq!((used.calls, used.denied), (1000, 600));
}

pub(crate) async fn links_and_names_end_with_the_run(stage: &Stage) {
    let scene = stage.scene();
    let sandbox = scene.sandbox().await;
    let keep = format!("{CONNECT}\nkept, mine = connect(), tools\nprint(tools.x.echo(a=1))");
    assert_eq!(told(&scene.run_in(&sandbox, program("python", &keep)).await), "{'a': 1}");
    let mut later = program(
        "python",
        r#"
try: print(tools)
except NameError: print("no name")
try: mine.x.echo(a=2)
except mine.Error as e: print(e.code)
print(kept.recv(1), "PALISADE_TOOLS" in os.environ)
"#,
    );
    later.access.clear();
    assert_eq!(told(&scene.run_in(&sandbox, later).await), "no name\nno_run\nb'' False");
    let again = program("python", "print(tools.x.echo(a=3), mine.x.echo(a=4))");
    assert_eq!(told(&scene.run_in(&sandbox, again).await), "{'a': 3} {'a': 4}");
    assert_eq!(scene.host.calls().len(), 3);
}

pub(crate) async fn labels_stick_to_a_persistent_sandbox(stage: &Stage) {
    let scene = stage.scene();
    let sandbox = scene.sandbox().await;
    let read = scene.run_in(&sandbox, program("python", "secret = tools.mail.echo(a=1)")).await;
    told(&read);
    let leak = "\ntry: tools.sink.echo(a=str(secret))\nexcept tools.Error as e: print(e.code)";
    let result = scene.run_in(&sandbox, program("python", leak)).await;
    assert_eq!(told(&result), "label_refused");
    assert_eq!(scene.host.calls(), ["mail.echo"]);
}

pub(crate) async fn an_interrupted_run_cancels_its_calls_and_keeps_its_state(stage: &Stage) {
    let scene = stage.scene();
    let sandbox = scene.sandbox().await;
    let slow = program("python", "x = 41\ntools.x.slow()");
    let result = scene.run_in(&sandbox, within(slow, 700)).await;
    assert_eq!(result.outcome, Outcome::TimedOut);
    assert_eq!(told(&scene.run_in(&sandbox, program("python", "print(x + 1)")).await), "42");
    while scene.host.cancelled() == 0 {
        tokio::task::yield_now().await;
    }
}

/// The question that waits.
async fn asked(scene: &Scene) -> engine::Approval {
    let approvals = scene.engine.gatekeeper().approvals();
    loop {
        if let Some(asked) = approvals.list(Listed::Open).await.unwrap().pop() {
            return asked;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn the_clock_stands_still_while_a_human_is_asked(stage: &Stage) {
    let scene = stage.scene();
    let ask = within(program("python", "print(tools.x.write(a=1))"), 1500);
    let decide = async {
        let asked = asked(&scene).await;
        assert_eq!(asked.tool, "x.write");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let approvals = scene.engine.gatekeeper().approvals();
        approvals.decide(&asked.id, Choice::Approve, Approver::Local, None).await.unwrap();
    };
    let (result, ()) = tokio::join!(scene.run(ask), decide);
    assert_eq!(told(&result), "{'a': 1}");
    assert_eq!(scene.host.calls(), ["x.write"], "nothing is replayed");
}

pub(crate) async fn two_principals_share_no_functions_memory_or_answers(stage: &Stage) {
    let scene = stage.scene();
    scene.completes("python", "tools.memory['k'] = 'mine'").await;
    let other = Caller::owner(Principal::anonymous());
    let result =
        scene.run_as(&other, program("python", "print(tools.memory.keys(), tools.memory.get('k'))")).await;
    assert_eq!(told(&result), "[] None");
}
