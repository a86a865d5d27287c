//! A small MCP client over standard input and output: concurrent calls, cancellation, and killed servers.
//!
//! It speaks the newer version of the protocol, which needs no handshake, and returns results unchanged from
//! the wire.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Build, Palisade, User};

/// Far above the longest limit of any test.
const PATIENCE: Duration = Duration::from_secs(90);
const VERSION: &str = "2026-07-28";
/// Later notifications are dropped.
const NOTIFICATIONS_MAX: usize = 10_000;

type Answers = Arc<Mutex<HashMap<u64, SyncSender<Value>>>>;

/// A `palisade mcp` process and both ends of its streams; killed when dropped.
pub struct Client {
    child: Child,
    stdin: Mutex<Option<ChildStdin>>,
    answers: Answers,
    notifications: Arc<Mutex<Vec<Value>>>,
    next: AtomicU64,
}

/// A call that was sent.
pub struct Pending {
    id: u64,
    answer: Receiver<Value>,
}

impl Pending {
    /// Its answer; `None` if the server ended before or never answered.
    pub fn answer(&self) -> Option<Value> {
        self.answer.recv_timeout(PATIENCE).ok()
    }

    /// The structured part of its answer, if that is here already.
    pub fn result_so_far(&self) -> Option<Value> {
        let answer = self.answer.try_recv().ok()?;
        assert!(answer["result"].is_object(), "no result: {answer:#}");
        Some(answer["result"]["structuredContent"].clone())
    }

    /// The structured part of its answer.
    pub fn result(&self) -> Value {
        let answer = self.answer().expect("the server answers");
        assert!(answer["result"].is_object(), "no result: {answer:#}");
        answer["result"]["structuredContent"].clone()
    }
}

impl Client {
    /// `palisade mcp` as that user, with the state directory of this test.
    pub fn new(user: User) -> Self {
        Self::start(Palisade::new(Build::Real, user, &["mcp"]))
    }

    /// Any palisade that speaks MCP on its standard streams.
    pub fn start(palisade: Palisade) -> Self {
        Self::start_logging(palisade, Stdio::null())
    }

    /// The same with its log.
    pub fn start_logging(palisade: Palisade, log: impl Into<Stdio>) -> Self {
        let mut command = palisade.into_command();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.expect("palisade starts");
        let stdin = Mutex::new(child.stdin.take());
        let answers = Answers::default();
        let notifications: Arc<Mutex<Vec<Value>>> = Arc::default();
        let heard = Arc::clone(&notifications);
        let (lines, waiting) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&answers));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                if message.get("method").is_some() {
                    let mut heard = locked(&heard);
                    if heard.len() < NOTIFICATIONS_MAX {
                        heard.push(message);
                    }
                    continue;
                }
                let id = message["id"].as_u64();
                let caller = id.and_then(|id| locked(&waiting).remove(&id));
                caller.map(|caller| caller.send(message).ok());
            }
            // Wakes callers that still wait: no answer will come.
            locked(&waiting).clear();
        });
        Self { child, stdin, answers, notifications, next: AtomicU64::new(1) }
    }

    /// What the server said without being asked, so far.
    pub fn notifications(&self) -> Vec<Value> {
        locked(&self.notifications).clone()
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request.
    pub fn send(&self, method: &str, mut params: Value) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::sync_channel(1);
        locked(&self.answers).insert(id, sender);
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "suite", "version": "1"});
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        Pending { id, answer }
    }

    /// Calls a tool without waiting.
    pub fn begin(&self, tool: &str, arguments: Value) -> Pending {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool. Returns the structured part of its answer.
    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        self.begin(tool, arguments).result()
    }

    /// Calls a tool. Returns its whole result, with the content blocks.
    pub fn call_whole(&self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.begin(tool, arguments).answer().expect("the server answers");
        answer["result"].take()
    }

    /// Cancels a call.
    pub fn cancel(&self, pending: &Pending) {
        let params = json!({"requestId": pending.id, "reason": "test"});
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    /// Opens a sandbox. Returns its id.
    pub fn open(&self, arguments: Value) -> String {
        let opened = self.call("sandbox_open", arguments);
        opened["sandbox_id"].as_str().unwrap_or_else(|| panic!("not opened: {opened:#}")).to_owned()
    }

    /// Runs a program in a sandbox.
    pub fn run(&self, sandbox: &str, language: &str, code: &str) -> Value {
        self.run_with(sandbox, language, code, json!({}))
    }

    /// The same with more arguments. Returns the result without the long list of guarantees.
    pub fn run_with(&self, sandbox: &str, language: &str, code: &str, more: Value) -> Value {
        let mut result = self.begin_run(sandbox, language, code, more).result();
        result.as_object_mut().map(|fields| fields.remove("isolation"));
        result
    }

    /// The same without waiting.
    pub fn begin_run(&self, sandbox: &str, language: &str, code: &str, more: Value) -> Pending {
        let mut arguments = json!({"language": language, "code": code, "sandbox_id": sandbox});
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        self.begin("run", arguments)
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Closes standard input and waits for the server to end.
    pub fn end(mut self) -> ExitStatus {
        locked(&self.stdin).take();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("palisade did not end within {PATIENCE:?}");
    }

    fn write(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        if let Some(stdin) = locked(&self.stdin).as_mut() {
            // A test notices a server that is gone by the missing answer.
            stdin.write_all(line.as_bytes()).ok();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
