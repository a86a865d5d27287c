//! Client of a running `palisade serve` over its control socket: tool calls, logs of runs, files.
//!
//! ```text
//! connect -> POST /mcp, one request of the 2026-07-28 protocol -> JSON, or events: progress ... answer
//! ```
//! Each request has a separate connection: dropping a call cancels it, as that protocol defines. Everything
//! read is bounded, because another program may listen on the server's path.

pub(crate) mod attach;
mod events;
pub(crate) mod http;

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::net::UnixStream;

use self::events::Events;
use self::http::{Payload, Request, Response};
use mcp::RUN_ID_KEY;

const PROTOCOL: &str = "2026-07-28";
const ENDPOINT: &str = "/mcp";
const META_PREFIX: &str = "io.modelcontextprotocol/";
/// Maximum size of an answer, or of one event.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum size of a refusal's reason.
const REASON_BYTES_MAX: usize = 4096;
/// Bytes of a log per request.
const LOG_BYTES: usize = 256 << 10;
const LOG_RANGE_KEY: &str = "palisade/range";

/// A failure between this process and the server, or a refusal by the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no server answers on {}", path.display())]
    NoServer { path: PathBuf },
    #[error("the control socket {} is another user's", path.display())]
    NotAllowed { path: PathBuf },
    #[error("cannot connect to {}: {source}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the connection to the server broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the server answered with status {status}: {reason}")]
    Status { status: u16, reason: String },
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(&'static str),
    #[error("the server said: {0}")]
    Protocol(String),
    /// A tool call that failed.
    #[error("{message}")]
    Refused { code: String, message: String, remedy: Option<String>, is_ours: bool },
    #[error("interrupted")]
    Interrupted,
}

impl ClientError {
    /// The remedy for the error.
    pub(crate) fn remedy(&self) -> Option<&str> {
        match self {
            Self::NoServer { .. } => Some(
                "start one with `palisade serve`; if it runs with another state directory, give --state-dir or --socket",
            ),
            Self::NotAllowed { .. } => Some("run this as the user that runs the server, or as root"),
            Self::Broken(_) => Some("see whether `palisade serve` still runs, and what it says"),
            Self::Refused { remedy, .. } => remedy.as_deref(),
            _ => None,
        }
    }
}

/// The server to call.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

/// A message during a call.
#[derive(Debug)]
pub(crate) enum News {
    /// The run wrote output or is still alive. Holds its id, if the call has a run.
    Progress { run_id: Option<String> },
    /// The result of the call; the last message.
    Answer(Value),
}

/// A part of a run's output on one stream.
#[derive(Debug)]
pub(crate) struct LogText {
    pub(crate) text: String,
    pub(crate) next_offset: u64,
    /// Whether this is the end of the stream so far.
    pub(crate) at_end: bool,
}

impl Client {
    /// A client of the server at that socket.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// The path of the server's socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a plain HTTP request, for files by their URLs.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Response, ClientError> {
        let mut response = self.begin(request).await?;
        response.head().await?;
        Ok(response)
    }

    async fn begin(&self, request: Request<'_>) -> Result<Response, ClientError> {
        let stream = connect(&self.socket).await?;
        Ok(http::exchange(stream, request).await?)
    }

    /// Calls a tool without a run and returns its structured result.
    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Result<Value, ClientError> {
        let mut call = self.call(name, arguments).await?;
        loop {
            if let News::Answer(answer) = call.next().await? {
                return structured(answer);
            }
        }
    }

    /// Calls a tool; does not wait for the answer.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<PendingCall, ClientError> {
        self.request("tools/call", name, json!({ "name": name, "arguments": arguments })).await
    }

    /// The output of a run on `stream` from `offset` on.
    pub(crate) async fn log(&self, run_id: &str, stream: &str, offset: u64) -> Result<LogText, ClientError> {
        let uri = format!("palisade://runs/{run_id}/log?stream={stream}&offset={offset}&limit={LOG_BYTES}");
        let mut call = self.request("resources/read", &uri, json!({ "uri": uri })).await?;
        let answer = loop {
            if let News::Answer(answer) = call.next().await? {
                break answer;
            }
        };
        let content = &answer["contents"][0];
        let range = &content["_meta"][LOG_RANGE_KEY];
        let text = content["text"].as_str().ok_or(ClientError::Nonsense("a log without text"))?.to_owned();
        let next_offset =
            range["next_offset"].as_u64().ok_or(ClientError::Nonsense("a log without a range"))?;
        Ok(LogText { text, next_offset, at_end: range["at_end"].as_bool().unwrap_or(true) })
    }

    async fn request(&self, method: &str, name: &str, mut params: Value) -> Result<PendingCall, ClientError> {
        let mut meta = json!({ "progressToken": 1 });
        meta[format!("{META_PREFIX}protocolVersion")] = json!(PROTOCOL);
        meta[format!("{META_PREFIX}clientInfo")] =
            json!({ "name": "palisade-cli", "version": env!("CARGO_PKG_VERSION") });
        meta[format!("{META_PREFIX}clientCapabilities")] = json!({});
        params["_meta"] = meta;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", PROTOCOL),
            ("mcp-method", method),
            ("mcp-name", name),
        ];
        let payload = Payload::Bytes(body.as_bytes());
        let response =
            self.begin(Request { method: "POST", path: ENDPOINT, headers: &headers, payload }).await?;
        Ok(PendingCall { events: Events::new(response, ANSWER_BYTES_MAX) })
    }
}

/// A call in progress. Dropping it cancels it.
pub(crate) struct PendingCall {
    events: Events,
}

impl PendingCall {
    /// The next message. The future can be dropped and called again without losing one.
    pub(crate) async fn next(&mut self) -> Result<News, ClientError> {
        loop {
            let Some(event) = self.events.next().await? else {
                return Err(ClientError::Nonsense("it ended without a result"));
            };
            let status = self.events.status();
            let Ok(mut message) = serde_json::from_slice::<Value>(&event) else {
                return Err(of_status(status, &event));
            };
            if let Some(error) = message.get("error") {
                let said = error["message"].as_str().unwrap_or("an error without words");
                return Err(ClientError::Protocol(said.to_owned()));
            }
            if message.get("result").is_some() {
                return Ok(News::Answer(message["result"].take()));
            }
            if message["method"] == "notifications/progress" {
                let run_id = message["params"]["_meta"][RUN_ID_KEY].as_str().map(str::to_owned);
                return Ok(News::Progress { run_id });
            }
        }
    }
}

/// The error of an unexpected response.
pub(crate) async fn refusal(mut response: Response) -> ClientError {
    let status = response.status;
    match response.collect(REASON_BYTES_MAX).await {
        Ok(reason) => of_status(status, &reason),
        Err(error) => error.into(),
    }
}

fn of_status(status: u16, said: &[u8]) -> ClientError {
    if status == http::OK {
        return ClientError::Nonsense("it is not JSON");
    }
    let said = &said[..said.len().min(REASON_BYTES_MAX)];
    let reason = terminal::plain(String::from_utf8_lossy(said).trim_end());
    ClientError::Status { status, reason }
}

/// The structured content of a tool's result, or the error.
pub(crate) fn structured(mut answer: Value) -> Result<Value, ClientError> {
    let structured = answer["structuredContent"].take();
    if answer["isError"] != true {
        return Ok(structured);
    }
    let error = &structured["error"];
    let said = error["message"].as_str().or_else(|| answer["content"][0]["text"].as_str());
    Err(ClientError::Refused {
        code: error["code"].as_str().unwrap_or_default().to_owned(),
        message: said.unwrap_or("the server refused without a reason").to_owned(),
        remedy: error["remedy"].as_str().map(str::to_owned),
        is_ours: error["retryable"] == true,
    })
}

async fn connect(path: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(path).await.map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoServer { path },
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed { path },
            _ => ClientError::Connect { path, source },
        }
    })
}

#[cfg(test)]
mod tests;
