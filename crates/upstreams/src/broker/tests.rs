//! The broker over a stream of bytes and a host without servers: rules, budgets, labels, and hostile programs.

use std::sync::Arc;
use std::time::Duration;

use engine::access::{AccessBook, AccessCall, Opened, ToolsUse};
use engine::links::RunPause;
use engine::{Approver, Caller, Choice, Gatekeeper, Listed};
use policy::{Book, Principal};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::fake::FakeHost;
use super::session::{Session, Shared};
use super::shelf::Shelf;
use super::{ToolBook, ToolBookParts, labels::LabelStore, rates::Rates, serve};

const PATIENCE: Duration = Duration::from_secs(20);

/// One run and its parts.
pub(super) struct Stage {
    pub(super) folder: harness::TestFolder,
    pub(super) host: Arc<FakeHost>,
    pub(super) session: Arc<Session>,
    pause: Arc<RunPause>,
}

fn shared(folder: &harness::TestFolder, host: Arc<dyn crate::ToolHost>, book: Book) -> Arc<Shared> {
    Arc::new(Shared {
        host,
        gatekeeper: Arc::new(Gatekeeper::new(folder.path(), book)),
        rates: Rates::new(super::CALLS_PER_MINUTE_MAX),
        requests: Rates::new(super::REQUESTS_PER_MINUTE_MAX),
        labels: LabelStore::new(folder.path()),
        saved: Shelf::new(folder.path(), "saved"),
        memory: Shelf::new(folder.path(), "memory"),
    })
}

fn servers() -> Vec<String> {
    ["mail", "odd-server", "sink", "x"].map(str::to_owned).to_vec()
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::in_sandbox(None)
    }

    pub(super) fn in_sandbox(sandbox: Option<&str>) -> Self {
        Self::of(sandbox, Book::default())
    }

    /// Under a policy.
    pub(super) fn under(book: Book) -> Self {
        Self::of(None, book)
    }

    fn of(sandbox: Option<&str>, book: Book) -> Self {
        let (folder, host) = (harness::TestFolder::new(), Arc::new(FakeHost::default()));
        let shared = shared(&folder, Arc::clone(&host) as Arc<dyn crate::ToolHost>, book);
        let session = Session::new(shared, Caller::local(), sandbox, servers()).unwrap();
        Self { folder, host, session: Arc::new(session), pause: Arc::default() }
    }

    /// Over other servers. The stage's own host has no part in it.
    pub(super) fn over(host: Arc<dyn crate::ToolHost>, servers: &[&str]) -> Self {
        let folder = harness::TestFolder::new();
        let shared = shared(&folder, host, Book::default());
        let servers = servers.iter().map(|name| (*name).to_owned()).collect();
        let session = Session::new(shared, Caller::local(), None, servers).unwrap();
        Self { folder, host: Arc::default(), session: Arc::new(session), pause: Arc::default() }
    }

    /// Another run of the same server.
    pub(super) fn again(&self, caller: Caller, sandbox: Option<&str>) -> Self {
        let session = Session::new(Arc::clone(&self.session.shared), caller, sandbox, servers()).unwrap();
        let folder = harness::TestFolder::new();
        Self { folder, host: Arc::clone(&self.host), session: Arc::new(session), pause: Arc::default() }
    }

    pub(super) fn connect(&self) -> Program {
        self.connect_over(1 << 16)
    }

    fn connect_over(&self, bytes: usize) -> Program {
        let (program, broker) = tokio::io::duplex(bytes);
        let served = tokio::spawn(serve::serve(Arc::clone(&self.session), broker, Arc::clone(&self.pause)));
        Program { stream: program, rest: Vec::new(), served, patience: PATIENCE }
    }

    /// For clocks that jump: without a timer of its own, to which a clock could jump while the disk is waited for.
    pub(super) fn connect_patient(&self) -> Program {
        Program { patience: Duration::MAX, ..self.connect() }
    }

    pub(super) fn used(&self) -> ToolsUse {
        self.session.used()
    }
}

/// The program's end of a link.
pub(super) struct Program {
    stream: DuplexStream,
    rest: Vec<u8>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
    patience: Duration,
}

impl Program {
    pub(super) async fn send(&mut self, request: &Value) {
        self.stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }

    /// The next answer; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let patience = self.patience;
        let read = async {
            loop {
                if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.rest.drain(..=end).collect();
                    return Some(serde_json::from_slice(&line).unwrap());
                }
                if self.stream.read_buf(&mut self.rest).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        };
        match patience {
            Duration::MAX => read.await,
            patience => tokio::time::timeout(patience, read).await.unwrap(),
        }
    }

    pub(super) async fn ask(&mut self, request: Value) -> Value {
        self.send(&request).await;
        self.next().await.unwrap()
    }

    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(json!({ "id": 1, "call": tool, "args": arguments })).await
    }

    /// The code of the error of a call.
    pub(super) async fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        answer["error"]["code"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

#[tokio::test]
async fn a_call_has_an_answer_and_is_counted() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let answer = program.call("x.echo", json!({"n": 7})).await;
    assert_eq!(answer, json!({"id": 1, "ok": {"content": [{"type": "text", "text": "{\"n\":7}"}]}}));
    let used = stage.used();
    assert_eq!((used.calls, used.failed, used.denied, used.by_server["x"]), (1, 0, 0, 1));
    assert!(used.bytes > 0 && used.pending.is_empty());
}

#[tokio::test]
async fn answers_come_in_any_order() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": "late", "call": "x.slow", "args": {"ms": 300}})).await;
    program.send(&json!({"id": "soon", "call": "x.echo"})).await;
    assert_eq!(program.next().await.unwrap()["id"], "soon");
    assert_eq!(program.next().await.unwrap()["id"], "late");
}

#[tokio::test]
async fn both_spellings_of_a_server_work_and_others_are_refused() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for server in ["odd-server", "odd_server"] {
        let answer = program.ask(json!({"id": 1, "call": [server, "echo"]})).await;
        assert!(answer.get("ok").is_some(), "{answer}");
    }
    assert_eq!(program.refused("y.echo", json!({})).await, "not_granted");
    assert_eq!(program.refused("nothing.echo", json!({})).await, "unknown_server");
    assert_eq!(program.refused("x.nothing", json!({})).await, "unknown_tool");
    assert_eq!(stage.host.calls(), ["odd-server.echo", "odd-server.echo"]);
}

#[tokio::test]
async fn denied_and_held_tools_are_not_called() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert_eq!(program.refused("x.hidden", json!({})).await, "tool_denied");
    assert_eq!(program.refused("x.held", json!({})).await, "tool_held");
    assert!(stage.host.calls().is_empty());
    assert_eq!((stage.used().denied, stage.used().calls), (2, 0));
}

#[tokio::test]
async fn a_tool_that_asks_waits_for_a_human_and_blocks_only_its_own_call() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": "w", "call": "x.write", "args": {"a": 1}})).await;
    assert_eq!(program.ask(json!({"id": "e", "call": "x.echo"})).await["id"], "e");
    let approvals = stage.session.shared.gatekeeper.approvals();
    let asked = loop {
        match approvals.list(Listed::Open).await.unwrap().pop() {
            Some(asked) => break asked,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(asked.tool, "x.write");
    while !stage.used().pending.iter().any(|one| one.contains(asked.id.as_str())) {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.host.calls(), ["x.echo"]);
    approvals.decide(&asked.id, Choice::Approve, Approver::Local, None).await.unwrap();
    let answer = program.next().await.unwrap();
    assert!(answer["id"] == "w" && answer.get("ok").is_some(), "{answer}");
    assert_eq!(stage.host.calls(), ["x.echo", "x.write"], "it is sent once");
}

#[tokio::test]
async fn a_human_who_says_no_is_told_to_the_program() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": 1, "call": "x.write"})).await;
    let approvals = stage.session.shared.gatekeeper.approvals();
    let asked = loop {
        match approvals.list(Listed::Open).await.unwrap().pop() {
            Some(asked) => break asked,
            None => tokio::task::yield_now().await,
        }
    };
    approvals.decide(&asked.id, Choice::Deny, Approver::Local, Some("no".to_owned())).await.unwrap();
    let answer = program.next().await.unwrap();
    assert_eq!(answer["error"]["code"], "approval_denied");
    assert!(stage.host.calls().is_empty() && stage.used().denied == 1);
}

#[tokio::test]
async fn labels_stick_to_a_persistent_sandbox() {
    let stage = Stage::in_sandbox(Some("sbx_1"));
    let mut program = stage.connect();
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    let mut later = stage.again(Caller::local(), Some("sbx_1")).connect();
    assert_eq!(later.refused("sink.echo", json!({})).await, "label_refused");
    // Also after the server was killed and started again.
    let (host, folder) = (Arc::new(FakeHost::default()), &stage.folder);
    let session =
        Session::new(shared(folder, host, Book::default()), Caller::local(), Some("sbx_1"), servers())
            .unwrap();
    assert_eq!(session.barred_by(&["private".to_owned()]), Some("private".to_owned()));
}

#[tokio::test]
async fn two_principals_share_nothing() {
    let stage = Stage::new();
    let mut one = stage.connect();
    let source = json!({"name": "f", "about": "", "language": "python", "source": "def f(): pass"});
    assert_eq!(one.ask(json!({"id": 1, "save": source})).await["ok"], true);
    one.ask(json!({"id": 1, "memory": {"set": "k", "value": 1}})).await;
    assert_eq!(one.ask(json!({"id": 1, "saved": "f"})).await["ok"]["name"], "f");
    let other = stage.again(Caller::owner(Principal::anonymous()), None);
    let mut other = other.connect();
    assert_eq!(other.ask(json!({"id": 1, "saved": "f"})).await["error"]["code"], "unknown_function");
    assert_eq!(other.ask(json!({"id": 1, "memory": {"get": "k"}})).await["ok"], json!({}));
    assert_eq!(other.ask(json!({"id": 1, "saved": null})).await["ok"], json!([]));
}

#[tokio::test]
async fn sixteen_calls_are_in_flight_and_eight_of_one_server() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for number in 0..30 {
        program.send(&json!({"id": number, "call": "x.slow", "args": {"ms": 30}})).await;
    }
    for _ in 0..30 {
        assert!(program.next().await.unwrap().get("ok").is_some());
    }
    assert_eq!(stage.host.peak(), super::IN_FLIGHT_OF_SERVER_MAX);
    for number in 0..60 {
        let server = ["x", "mail", "odd-server"][number % 3];
        program.send(&json!({"id": number, "call": [server, "slow"], "args": {"ms": 30}})).await;
    }
    for _ in 0..60 {
        assert!(program.next().await.unwrap().get("ok").is_some());
    }
    assert_eq!(stage.host.peak(), super::IN_FLIGHT_MAX);
}

#[tokio::test]
async fn a_flood_of_calls_ends_at_the_budget_of_the_run() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let mut denied = 0;
    for number in 0..super::CALLS_MAX + 50 {
        let answer = program.ask(json!({"id": number, "call": "x.echo"})).await;
        denied += u64::from(answer["error"]["code"] == "calls_exhausted");
    }
    assert_eq!((denied, stage.used().denied, stage.used().calls), (50, 50, super::CALLS_MAX));
    let mut other = stage.again(Caller::local(), None).connect();
    assert!(other.call("x.echo", json!({})).await.get("ok").is_some(), "another run has its own budget");
}

#[tokio::test]
async fn results_are_bounded_each_and_together() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert_eq!(
        program.refused("x.big", json!({"bytes": super::RESULT_BYTES_MAX + 1})).await,
        "answer_too_large"
    );
    let mut codes = Vec::new();
    for _ in 0..10 {
        let answer = program.call("x.big", json!({"bytes": super::RESULT_BYTES_MAX - 1000})).await;
        codes.push(answer["error"]["code"].as_str().unwrap_or("ok").to_owned());
    }
    assert_eq!(codes.iter().filter(|code| *code == "ok").count(), 8, "{codes:?}");
}

#[tokio::test]
async fn a_call_is_cancelled_by_its_id_and_the_server_is_told() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": 1, "call": "x.slow"})).await;
    while stage.host.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    program.send(&json!({"id": 2, "cancel": 1})).await;
    let answers = [program.next().await.unwrap(), program.next().await.unwrap()];
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!((&of(1)["error"]["code"], &of(2)["ok"]["cancelled"]), (&json!("cancelled"), &json!(true)));
    assert_eq!(stage.host.cancelled(), 1);
    let again = program.ask(json!({"id": 3, "cancel": 1})).await;
    assert_eq!(again["ok"]["cancelled"], false);
}

#[tokio::test]
async fn the_end_of_a_link_cancels_its_calls_and_names_them() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": 1, "call": "x.slow"})).await;
    while stage.host.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    // As the engine does at the end of a run.
    program.served.abort();
    while stage.host.cancelled() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.used().pending, ["x.slow"]);
    assert!(stage.session.warnings()[0].contains("x.slow"));
}

#[tokio::test]
async fn a_program_that_never_reads_holds_bounded_requests() {
    let stage = Stage::new();
    let mut program = stage.connect_over(4096);
    let line = format!("{}\n", json!({"id": 1, "call": "x.big", "args": {"bytes": 5_000}}));
    let flood = async {
        for number in 0.. {
            let line = line.replace("\"id\":1", &format!("\"id\":{number}"));
            program.stream.write_all(line.as_bytes()).await.unwrap();
        }
    };
    // Without a bound, all calls of the run would be made in this time.
    assert!(tokio::time::timeout(Duration::from_secs(2), flood).await.is_err());
    assert!(stage.host.calls().len() <= super::OPEN_REQUESTS_MAX + 2, "{}", stage.host.calls().len());
}

#[tokio::test]
async fn forged_lines_are_answered_and_the_link_goes_on() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for line in ["nonsense", "{}", "[1]", "{\"id\":{}}", "\u{1}\u{2}", "{\"id\":1,\"call\":\"x\"}"] {
        program.stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        assert_eq!(program.next().await.unwrap()["error"]["code"], "bad_request", "{line}");
    }
    program.stream.write_all(b"\n\n  \n").await.unwrap();
    assert!(program.call("x.echo", json!({})).await.get("ok").is_some());
}

#[tokio::test]
async fn a_line_without_an_end_is_refused_at_4_mb() {
    let stage = Stage::new();
    let mut program = stage.connect_over(1 << 20);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..5 {
        if program.stream.write_all(&piece).await.is_err() {
            break;
        }
    }
    assert_eq!(program.next().await.unwrap()["error"]["code"], "request_too_large");
    assert_eq!(program.next().await, None);
}

#[tokio::test]
async fn half_lines_on_many_links_hold_bounded_memory_and_others_go_on() {
    let stage = Stage::new();
    let mut half = Vec::new();
    for _ in 0..16 {
        let mut program = stage.connect_over(1 << 12);
        let piece = vec![b'x'; 1 << 20];
        // Beyond the large requests of a run, the broker does not read.
        tokio::time::timeout(Duration::from_millis(50), program.stream.write_all(&piece)).await.ok();
        half.push(program);
    }
    let mut program = stage.connect();
    assert!(program.call("x.echo", json!({})).await.get("ok").is_some());
    assert_eq!(stage.session.large.available_permits(), 0);
    drop(half);
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": 1, "call": "x.slow", "args": {"ms": 200}})).await;
    let answer = program.ask(json!({"id": 1, "call": "x.echo"})).await;
    assert_eq!(answer["error"]["code"], "bad_request");
    assert!(program.next().await.unwrap().get("ok").is_some());
}

#[tokio::test]
async fn a_time_limit_of_a_call_is_kept() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let answer = program.ask(json!({"id": 1, "call": "x.slow", "timeout_ms": 50})).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["may_have_run"]),
        (&json!("timed_out"), &json!(true))
    );
    assert_eq!((stage.used().calls, stage.used().failed), (1, 1));
}

#[tokio::test]
async fn a_failed_tool_is_an_answer_that_counts_as_failed() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert_eq!(program.call("x.fail", json!({})).await["ok"]["isError"], true);
    assert_eq!((stage.used().calls, stage.used().failed, stage.used().denied), (1, 1, 0));
}

#[tokio::test]
async fn a_search_shows_only_the_servers_of_the_run() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let found = program.ask(json!({"id": 1, "find": "echo"})).await;
    let names: Vec<&str> =
        found["ok"]["tools"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["x.echo", "odd-server.echo", "mail.echo", "sink.echo"]);
    let servers = program.ask(json!({"id": 1, "servers": true})).await;
    assert_eq!(servers["ok"].as_array().unwrap().len(), 4);
    assert_eq!(program.ask(json!({"id": 1, "describe": "x.echo"})).await["ok"]["tool"], "echo");
    assert_eq!(program.ask(json!({"id": 1, "describe": "y.echo"})).await["error"]["code"], "not_granted");
}

#[tokio::test]
async fn calls_that_nothing_waited_for_are_named() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.ask(json!({"id": 1, "left": ["x.echo", "x.\u{7}bell"]})).await;
    let warning = stage.session.warnings().pop().unwrap();
    assert!(warning.contains("x.echo, x.\\u{7}bell"), "{warning}");
}

#[test]
fn a_server_in_no_bundle_is_a_name_of_its_own() {
    let (folder, host) = (harness::TestFolder::new(), Arc::new(FakeHost::default()));
    let gatekeeper = Arc::new(Gatekeeper::new(folder.path(), Book::default()));
    let book = ToolBook::new(ToolBookParts { web: None, host, gatekeeper }, folder.path());
    let names: Vec<&str> = book.offered().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["mail", "odd-server", "sink", "x", "y"]);
    let (caller, asked) = (Caller::local(), ["x".to_owned()]);
    let call = AccessCall { caller: &caller, run_id: None, sandbox: None, names: &asked, calls_tools: false };
    let Opened { grants, summary, has_tools, record, .. } = book.open(&call).unwrap();
    assert_eq!((grants.len(), summary.as_str(), has_tools), (1, "tools of x", true));
    assert_eq!(record.tools(), Some(ToolsUse::default()));
}
