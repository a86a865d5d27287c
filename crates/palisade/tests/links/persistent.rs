//! Links in persistent sandboxes: grants belong to the open run, and all processes of the sandbox share them.

use engine::RunRequest;
use engine::links::ListenAt;
use policy::Ask;
use sandbox::Outcome;

use crate::stage::{PORT, Stage, at, count, echo, program, run, told, tools};

pub(crate) async fn the_next_run_without_a_grant_cannot_connect(stage: &Stage) {
    let sandbox = stage.sandbox().await;
    let code = "c = connect(); c.sendall(b'one'); print(read_exactly(c, 3))";
    assert_eq!(told(&stage.run_in(&sandbox, program(code, tools(echo))).await), "b'one'");
    // The interpreter and its connection live on; the link does not, and nothing listens.
    let code = r#"
print(c.recv(1))
try: connect()
except OSError as error: print(type(error).__name__, os.path.exists("/tmp/.palisade"))
"#;
    let second = told(&stage.run_in(&sandbox, program(code, Vec::new())).await);
    assert_eq!(second, "b''\nFileNotFoundError False");
    let code = "c = connect(); c.sendall(b'two'); print(read_exactly(c, 3))";
    assert_eq!(told(&stage.run_in(&sandbox, program(code, tools(echo))).await), "b'two'");
}

pub(crate) async fn a_process_left_behind_shares_the_grants_of_the_open_run(stage: &Stage) {
    let sandbox = stage.sandbox().await;
    // A thread that an earlier run left behind tries to connect all the time.
    let code = r#"
got = []
def try_often():
    while True:
        try:
            c = connect(); c.sendall(b"abc"); c.shutdown(socket.SHUT_WR); got.append(read_all(c)); c.close()
        except OSError: pass
        time.sleep(0.005)
threading.Thread(target=try_often, daemon=True).start()
time.sleep(0.1)
print(len(got))
"#;
    assert_eq!(told(&stage.run_in(&sandbox, program(code, Vec::new())).await), "0");
    let code = r#"
while b"3" not in got: time.sleep(0.01)
print("shared")
"#;
    assert_eq!(told(&stage.run_in(&sandbox, program(code, tools(count))).await), "shared");
    let code = "got.clear(); time.sleep(0.2); print([g for g in got if g])";
    assert_eq!(told(&stage.run_in(&sandbox, program(code, Vec::new())).await), "[]");
}

pub(crate) async fn a_run_that_is_interrupted_keeps_its_interpreter(stage: &Stage) {
    let sandbox = stage.sandbox().await;
    let mut request = program("kept = 42; c = connect(); c.sendall(b'x'); read_exactly(c, 5)", tools(echo));
    request.ask = Ask { timeout_ms: Some(700), ..request.ask };
    let result = stage.run_in(&sandbox, request).await;
    assert_eq!(result.outcome, Outcome::TimedOut);
    assert_eq!(told(&stage.run_in(&sandbox, program("print(kept)", Vec::new())).await), "42");
}

pub(crate) async fn a_port_that_is_in_use_prevents_the_run_and_keeps_the_interpreter(stage: &Stage) {
    let sandbox = stage.sandbox().await;
    let code = format!("s = socket.create_server(('127.0.0.1', {PORT})); kept = 7");
    told(&stage.run_in(&sandbox, program(&code, Vec::new())).await);
    let grants = || vec![at(ListenAt::Loopback(PORT), echo)];
    let result = stage.run_in(&sandbox, program("kept = 8", grants())).await;
    let error = result.error.unwrap();
    assert_eq!((result.outcome, error.code.as_str()), (Outcome::Unavailable, "listen_failed"));
    assert!(error.cause.unwrap().contains("in use"));
    assert_eq!(told(&stage.run_in(&sandbox, program("s.close(); print(kept)", Vec::new())).await), "7");
    let code =
        format!("c = socket.create_connection(('127.0.0.1', {PORT})); c.sendall(b'x'); print(c.recv(1))");
    // Again and again on the same port: closed connections do not block it.
    for _ in 0..3 {
        assert_eq!(told(&stage.run_in(&sandbox, program(&code, grants())).await), "b'x'");
    }
}

pub(crate) async fn files_are_collected_after_links_ended(stage: &Stage) {
    let code = r#"
import subprocess
open("kept.txt", "w").write("content")
flood = f"import socket\nc = socket.socket(socket.AF_UNIX); c.connect({PATH!r})\nwhile True: c.sendall(b'x' * 65536)"
for _ in range(4): subprocess.Popen([sys.executable, "-c", flood])
time.sleep(0.3)
"#;
    let request = RunRequest { collect_files: true, ..program(code, tools(count)) };
    let result = run(&stage.engine, request).await;
    told(&result);
    let kept: Vec<_> = result.execution().artifacts.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(kept, ["kept.txt"], "{:?}", result.warnings);
}

pub(crate) async fn a_language_that_is_not_live_has_links_too(stage: &Stage) {
    let Some(language) = ["perl", "ruby", "c"].into_iter().find(|name| *name == "perl") else { return };
    if stage.engine.runtimes().find(language).await.is_err() {
        return;
    }
    let sandbox = stage.sandbox().await;
    let code = r#"
use IO::Socket::UNIX;
my $c = IO::Socket::UNIX->new(Peer => "/tmp/.palisade/tools.sock") or die "no: $!";
print $c "hello\n"; $c->flush; print scalar <$c>;
"#;
    let request =
        RunRequest { language: language.to_owned(), code: code.to_owned(), ..program("", tools(echo)) };
    assert_eq!(told(&stage.run_in(&sandbox, request).await), "hello");
}
