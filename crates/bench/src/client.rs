//! A small MCP client over the standard streams of a server that it started: lines of JSON, many concurrent
//! calls.
//!
//! The client shares the machine with the measured server, so it does little work. Calls are serialized once
//! and only get their id when they are sent. A thread reads the answers, records their time and parses only
//! the few fields that are used. The client supports only the newest revision (2026-07-28), because the
//! server is the same binary.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const PROTOCOL: &str = "2026-07-28";
/// Maximum time for any answer. Compilers take the longest.
const PATIENCE: Duration = Duration::from_secs(150);

/// A serialized request without its id.
#[derive(Debug, Clone)]
pub(super) struct BenchCall {
    rest: String,
}

impl BenchCall {
    /// A method with its parameters.
    pub(super) fn method(method: &str, mut params: Value) -> Self {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": PROTOCOL,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "palisade-bench", "version": env!("CARGO_PKG_VERSION") },
        });
        Self { rest: format!("\"method\":{},\"params\":{params}}}", json!(method)) }
    }

    /// A tool with its arguments.
    pub(super) fn tool(name: &str, arguments: &Value) -> Self {
        Self::method("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// A program in a fresh sandbox.
    pub(super) fn run(language: &str, code: &str) -> Self {
        Self::tool("run", &json!({ "language": language, "code": code }))
    }

    /// A program in a persistent sandbox.
    pub(super) fn run_in(sandbox: &str, language: &str, code: &str) -> Self {
        Self::tool("run", &json!({ "sandbox_id": sandbox, "language": language, "code": code }))
    }

    /// The whole request, as JSON without a line end.
    pub(super) fn numbered(&self, number: u64) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{number},{}", self.rest)
    }
}

/// The fields of a message that are used.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    id: Option<u64>,
    #[serde(default)]
    result: ToolResult,
    error: Option<Problem>,
}

#[derive(Debug, Default, Deserialize)]
struct ToolResult {
    #[serde(default, rename = "structuredContent")]
    structured: Structured,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

/// The fields of the structured result that are used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Structured {
    #[serde(default)]
    pub(super) outcome: String,
    #[serde(default)]
    pub(super) stdout: String,
    #[serde(default)]
    pub(super) sandbox_id: String,
    #[serde(default)]
    pub(super) usage: Usage,
    /// Only in the result of `get_capabilities`.
    #[serde(default)]
    pub(super) languages: Vec<Known>,
    error: Option<Problem>,
}

/// A language that a server knows.
#[derive(Debug, Deserialize)]
pub(super) struct Known {
    pub(super) state: String,
}

/// Times that the server measured.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) wall_ms: f64,
    pub(super) queued_ms: f64,
    pub(super) start_ms: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: Value,
    message: String,
}

impl Message {
    /// Parses a message.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| format!("an answer that cannot be read: {error}"))
    }

    /// The tool's result, or the error.
    pub(super) fn into_result(self) -> Result<Structured, String> {
        let told = |problem: Problem| match problem.code.as_str() {
            Some(code) => format!("{code}: {}", problem.message),
            None => format!("{} ({})", problem.message, problem.code),
        };
        match (self.error, self.result.structured) {
            (Some(problem), _) => Err(told(problem)),
            (None, structured) if self.result.is_error => {
                let outcome = structured.outcome;
                Err(structured.error.map_or(outcome, told))
            }
            (None, structured) => Ok(structured),
        }
    }
}

/// An answer and its time of arrival.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) at: Instant,
    pub(super) result: Result<Structured, String>,
}

/// A call that was sent.
pub(super) struct Pending {
    pub(super) sent: Instant,
    answer: Receiver<Answer>,
}

impl Pending {
    /// Waits for the answer.
    pub(super) fn wait(self) -> Result<Answer, String> {
        self.answer.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no answer within {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => "the server closed the connection".to_owned(),
        })
    }
}

/// Unanswered calls by id; `None` once the server is gone.
type Waiting = Arc<Mutex<Option<HashMap<u64, SyncSender<Answer>>>>>;

/// One connection; any number of threads may use it.
pub(super) struct Client {
    stdin: Mutex<ChildStdin>,
    waiting: Waiting,
    last: AtomicU64,
}

impl Client {
    /// Reads and writes these two streams.
    pub(super) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let filed = Arc::clone(&waiting);
        std::thread::spawn(move || read_answers(stdout, &filed));
        Self { stdin: Mutex::new(stdin), waiting, last: AtomicU64::new(0) }
    }

    /// Sends a call and does not wait.
    pub(super) fn send(&self, call: &BenchCall) -> Result<Pending, String> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = call.numbered(number);
        line.push('\n');
        let (sender, answer) = sync_channel(1);
        match locked(&self.waiting).as_mut() {
            Some(waiting) => drop(waiting.insert(number, sender)),
            None => return Err("the server closed the connection".to_owned()),
        }
        let sent = Instant::now();
        locked(&self.stdin).write_all(line.as_bytes()).map_err(|error| format!("sending a call: {error}"))?;
        Ok(Pending { sent, answer })
    }

    /// Sends a call and waits for its answer. Also returns the time between the two in milliseconds.
    pub(super) fn call(&self, call: &BenchCall) -> Result<(Structured, f64), String> {
        let pending = self.send(call)?;
        let sent = pending.sent;
        let answer = pending.wait()?;
        Ok((answer.result?, milliseconds(answer.at.duration_since(sent))))
    }
}

/// The unit of the samples.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn read_answers(stdout: ChildStdout, waiting: &Waiting) {
    const BUFFER_BYTES: usize = 64 << 10;
    let mut stdout = BufReader::with_capacity(BUFFER_BYTES, stdout);
    let mut line = Vec::new();
    while read_line(&mut stdout, &mut line).is_ok_and(|has_more| has_more) {
        let at = Instant::now();
        // Notifications and unreadable messages have no id that a caller waits for.
        let Ok(message) = Message::read(&line) else { continue };
        let number = message.id.unwrap_or_default();
        let sender = locked(waiting).as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(sender) = sender {
            // The caller may have timed out.
            sender.send(Answer { at, result: message.into_result() }).ok();
        }
    }
    // Dropping the senders wakes every waiting caller.
    locked(waiting).take();
}

fn read_line(stdout: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    stdout.read_until(b'\n', line).map(|count| count > 0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_json_with_its_number() {
        let call = BenchCall::run("python", "print(\"a\\n\")");
        let value: Value = serde_json::from_str(&call.numbered(7)).unwrap();
        assert_eq!((value["id"].as_u64(), &value["method"]), (Some(7), &json!("tools/call")));
        assert_eq!(value["params"]["arguments"]["code"], json!("print(\"a\\n\")"));
        assert_eq!(value["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], json!(PROTOCOL));
    }

    #[test]
    fn a_refusal_is_told_with_its_code() {
        let text = r#"{"id":1,"result":{"isError":true,"structuredContent":{"outcome":"unavailable",
            "error":{"code":"busy","message":"too many runs wait"}}}}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(message.into_result().unwrap_err(), "busy: too many runs wait");
    }

    #[test]
    fn a_result_keeps_the_times_of_the_server() {
        let text = r#"{"id":1,"result":{"structuredContent":{"outcome":"completed","stdout":"1\n","usage":{"wall_ms":1.5}}}}"#;
        let result = serde_json::from_str::<Message>(text).unwrap().into_result().unwrap();
        assert_eq!((result.stdout.as_str(), result.usage.wall_ms), ("1\n", 1.5));
    }
}
