//! Starts, stops, crashes and rules of one server.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use upstreams::{Glob, ServerState, ToolAccess, ToolCall, ToolErrorCode, ToolHost, ToolName, Viewer};

use crate::stage::{Folder, arguments, call, call_within, host, is_alive, owner, query, spec, text, until};

pub(crate) async fn a_slow_start_is_shared_by_all_who_wait() {
    let folder = Folder::new();
    let host = host(&folder, spec("slow-start", &folder));
    assert_eq!(host.servers(Viewer::of(owner()))[0].state, ServerState::Idle);
    let impatient = call_within(&host, "echo", "x", Duration::from_millis(100));
    let patient = call(&host, "echo", "y");
    let (first, second) = tokio::join!(impatient, patient);
    assert_eq!(first.unwrap_err().code, ToolErrorCode::TimedOut);
    assert_eq!(text(&second.unwrap()), "y");
    host.close().await;
}

pub(crate) async fn a_server_that_never_answers_does_not_hold_a_caller() {
    let folder = Folder::new();
    let host = host(&folder, spec("never", &folder));
    let begun = Instant::now();
    let error = call_within(&host, "echo", "x", Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::TimedOut, false));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

pub(crate) async fn a_server_that_dies_at_start_is_left_alone_for_a_while() {
    let folder = Folder::new();
    let host = host(&folder, spec("dies", &folder));
    for _ in 0..8 {
        let error = call(&host, "echo", "x").await.unwrap_err();
        assert!(error.message.contains("no licence found"), "{error}");
    }
    // Two processes a start (the second with a handshake), and few starts.
    assert!(folder.count() <= 8, "{}", folder.count());
    assert!(matches!(host.servers(Viewer::of(owner()))[0].state, ServerState::Failed { .. }));
}

pub(crate) async fn a_server_that_ends_at_the_probe_is_started_again_and_remembered() {
    let folder = Folder::new();
    let first = host(&folder, spec("probe-dies", &folder));
    assert_eq!(text(&call(&first, "echo", "x").await.unwrap()), "x");
    first.close().await;
    let kept = std::fs::read_to_string(folder.0.join("tools/s.catalogue")).unwrap();
    assert!(kept.contains("\"era\":\"handshake\""), "{kept}");
}

pub(crate) async fn a_server_that_ignores_the_probe_is_offered_a_handshake() {
    let folder = Folder::new();
    let host = host(&folder, spec("probe-silent", &folder));
    assert_eq!(text(&call(&host, "echo", "x").await.unwrap()), "x");
    host.close().await;
}

pub(crate) async fn an_idle_server_is_stopped_and_started_again() {
    let folder = Folder::new();
    let mut spec = spec("plain", &folder);
    spec.idle = Duration::from_millis(200);
    let host = host(&folder, spec);
    call(&host, "echo", "x").await.unwrap();
    assert_eq!(host.servers(Viewer::of(owner()))[0].state, ServerState::Ready);
    until("the stop", Duration::from_secs(10), || {
        host.servers(Viewer::of(owner()))[0].state == ServerState::Idle
    })
    .await;
    assert_eq!(text(&call(&host, "echo", "again").await.unwrap()), "again");
    host.close().await;
}

pub(crate) async fn a_call_is_cancelled() {
    let folder = Folder::new();
    let host = host(&folder, spec("silent", &folder));
    host.list("s", owner(), Duration::from_secs(20)).await.unwrap();
    let cancel = CancellationToken::new();
    let call = ToolCall {
        principal: &Principal::local(),
        server: "s",
        tool: ToolName::Spelled("echo"),
        arguments: arguments(json!({})),
        deadline: Instant::now() + Duration::from_secs(30),
        cancel: cancel.clone(),
        answer_bytes_max: 1 << 20,
        is_learned_from: true,
    };
    let cancelling = async {
        until("the call", Duration::from_secs(10), || folder.count() > 0).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(host.call(call), cancelling);
    let error = outcome.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::Cancelled, true));
    host.close().await;
}

fn grandchild(folder: &Folder) -> u32 {
    std::fs::read_to_string(folder.file()).unwrap().parse().unwrap()
}

pub(crate) async fn the_whole_process_tree_ends_with_the_server() {
    let folder = Folder::new();
    let host = host(&folder, spec("family", &folder));
    call(&host, "echo", "x").await.unwrap();
    let pid = grandchild(&folder);
    assert!(is_alive(pid));
    host.close().await;
    assert!(!is_alive(pid));
}

/// What the killed process does: calls a tool, says so, and waits.
pub(crate) fn call_until_killed(_: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = Folder(std::env::var_os("UPSTREAMS_TEST_CALLER").unwrap().into());
        let host = host(&folder, spec("family", &folder));
        call(&host, "echo", "x").await.unwrap();
        println!("called");
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

pub(crate) async fn a_killed_palisade_leaves_no_upstream_process() {
    let folder = Folder::new();
    let mut caller = Command::new(std::env::current_exe().unwrap())
        .env("UPSTREAMS_TEST_CALLER", &folder.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(caller.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "called\n");
    let pid = grandchild(&folder);
    assert!(is_alive(pid));
    caller.kill().unwrap();
    caller.wait().unwrap();
    until("the end of the tree", Duration::from_secs(2), || !is_alive(pid)).await;
}

pub(crate) async fn a_tool_that_writes_is_asked_for_and_a_denied_one_is_refused() {
    let folder = Folder::new();
    let mut spec = spec("plain", &folder);
    spec.rules.deny.push(Glob::new("sl*").unwrap());
    let host = host(&folder, spec);
    let access = async |tool| host.standing(owner(), "s", tool).await.unwrap().access;
    assert_eq!(access("echo").await, ToolAccess::Allow);
    assert_eq!(access("write").await, ToolAccess::Ask);
    assert_eq!(access("slow").await, ToolAccess::Deny);
    assert_eq!(call(&host, "slow", "x").await.unwrap_err().code, ToolErrorCode::ToolDenied);
    let error = call(&host, "ech", "x").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::UnknownTool);
    assert!(error.remedy.contains("echo"), "{error}");
    assert_eq!(host.servers(Viewer::of(owner()))[0].tools, 2);
    let answer = call(&host, "write", "x").await.unwrap();
    assert_eq!(answer.labels, ["private"]);
    assert!(!answer.result.contains_key("_meta"));
    host.close().await;
}

pub(crate) async fn results_are_learned_from() {
    let folder = Folder::new();
    let host = host(&folder, spec("plain", &folder));
    for text in ["{\"id\": 1, \"name\": \"hunter2\"}", "{\"id\": 2}"] {
        call(&host, "echo", text).await.unwrap();
    }
    let expected = "-> {id: int, name?: str}  # seen";
    let begun = Instant::now();
    loop {
        let found = host.find(query("s.echo", 1)).await;
        if found.tools[0].signature.contains(expected) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", found.tools[0].signature);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.close().await;
    let kept = std::fs::read_to_string(folder.0.join("tools/s.catalogue")).unwrap();
    assert!(!kept.contains("hunter2"));
}
