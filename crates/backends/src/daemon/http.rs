//! HTTP over an engine's unix socket: one connection per call, each call bounded in time and in size.
//!
//! The engine is another program, and it may hang or answer anything. What it says is data: bytes up to a limit, a
//! status, and JSON that is read field by field.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// How long a call may take. Creating and starting take a third of a second on an idle machine.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Longest explanation of an engine that is passed on.
const WORDS_CHARS_MAX: usize = 500;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// There is no socket.
    #[error("there is no socket {}", .0.display())]
    NoSocket(PathBuf),
    /// There is a socket, but no engine that listens.
    #[error("no engine listens at {}", .0.display())]
    NoListener(PathBuf),
    /// The engine does not answer, or not in time.
    #[error("the engine does not answer: {0}")]
    Silent(String),
    /// The engine refused.
    #[error("the engine answered {status}: {words}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// Its explanation.
        words: String,
    },
    /// The answer has no meaning.
    #[error("the engine's answer cannot be understood: {0}")]
    Nonsense(String),
}

impl CallError {
    /// Whether there is no engine.
    pub(super) fn is_without_engine(&self) -> bool {
        matches!(self, Self::NoSocket(_) | Self::NoListener(_))
    }

    /// Whether the same call may succeed once the engine answers again.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_without_engine() || matches!(self, Self::Silent(_))
    }

    /// Whether the engine says that the thing does not exist.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the engine says that it is doing that already, or has done it.
    pub(super) fn is_done_already(&self) -> bool {
        matches!(self, Self::Refused { status: 304 | 404 | 409, .. })
    }
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        Self::other(error.to_string())
    }
}

/// The body of a request.
pub(super) enum Content {
    None,
    Json(Value),
    Tar(Vec<u8>),
}

/// An engine at a unix socket.
#[derive(Debug, Clone)]
pub(super) struct Client {
    socket: PathBuf,
    /// Things that the engine was asked to make without an answer: they may appear later.
    unanswered: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), unanswered: Arc::default() }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Calls the engine and reads its whole answer.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        content: Content,
    ) -> Result<Bytes, CallError> {
        let late = |_| CallError::Silent(format!("no answer within {} s", CALL_PATIENCE.as_secs()));
        tokio::time::timeout(CALL_PATIENCE, self.exchange(method, path, content)).await.map_err(late)?
    }

    /// Asks the engine to make something. It counts as unanswered also if the caller does not wait until the end.
    pub(super) async fn make(&self, path: &str, content: Content) -> Result<Bytes, CallError> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let made = self.call(Method::POST, path, content).await;
        if !matches!(made, Err(CallError::Silent(_))) {
            self.settle();
        }
        made
    }

    /// Called when something that was not answered cannot appear any more.
    pub(super) fn settle(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether something may appear that no caller waits for.
    pub(super) fn has_latecomers(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// [`Self::call`] for an answer in JSON.
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        content: Content,
    ) -> Result<Value, CallError> {
        parsed(&self.call(method, path, content).await?)
    }

    async fn exchange(&self, method: Method, path: &str, content: Content) -> Result<Bytes, CallError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CallError::NoSocket(self.socket.clone()),
            io::ErrorKind::ConnectionRefused => CallError::NoListener(self.socket.clone()),
            _ => CallError::Silent(error.to_string()),
        })?;
        let silent = |error: hyper::Error| CallError::Silent(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(silent)?;
        let request = request(method, path, content)?;
        let answer = async move {
            let response = sender.send_request(request).await.map_err(silent)?;
            let (head, body) = response.into_parts();
            let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let whole = whole.map_err(|error| CallError::Nonsense(error.to_string()))?.to_bytes();
            if head.status.is_success() { Ok(whole) } else { Err(refusal(head.status, &whole)) }
        };
        tokio::pin!(connection, answer);
        tokio::select! {
            answered = &mut answer => answered,
            // The connection has ended: what was read by then is the answer.
            _ = &mut connection => answer.await,
        }
    }
}

pub(super) fn parsed(bytes: &[u8]) -> Result<Value, CallError> {
    serde_json::from_slice(bytes).map_err(|error| CallError::Nonsense(error.to_string()))
}

fn request(method: Method, path: &str, content: Content) -> Result<Request<Full<Bytes>>, CallError> {
    let (kind, bytes) = match content {
        Content::None => (None, Vec::new()),
        Content::Json(value) => (Some("application/json"), value.to_string().into_bytes()),
        Content::Tar(bytes) => (Some("application/x-tar"), bytes),
    };
    let mut builder = Request::builder().method(method).uri(path);
    builder = builder.header(header::HOST, "engine").header(header::CONNECTION, "close");
    if let Some(kind) = kind {
        builder = builder.header(header::CONTENT_TYPE, kind);
    }
    let body = Full::new(Bytes::from(bytes));
    builder.body(body).map_err(|error| CallError::Nonsense(error.to_string()))
}

fn refusal(status: StatusCode, body: &[u8]) -> CallError {
    let told: Option<Value> = serde_json::from_slice(body).ok();
    let message = told.as_ref().and_then(|told| told.get("message")).and_then(Value::as_str);
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let words = text.trim().chars().filter(|letter| !letter.is_control()).take(WORDS_CHARS_MAX).collect();
    CallError::Refused { status: status.as_u16(), words }
}

/// A text as part of a query: everything but letters and digits is escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::fake::{FakeEngine, block_on};

    /// Refuses one thing, makes another one late, and never answers about the rest.
    fn silent(_: &str, path: &str) -> Option<(u16, String)> {
        match path {
            "/refused" => Some((500, String::new())),
            "/late" => {
                std::thread::sleep(Duration::from_secs(1));
                None
            }
            _ => None,
        }
    }

    #[test]
    fn what_the_engine_was_asked_to_make_without_an_answer_is_remembered() {
        let engine = FakeEngine::start("silent", silent);
        let client = engine.client();
        block_on(async {
            assert!(client.make("/refused", Content::None).await.is_err());
            assert!(!client.has_latecomers());
            assert!(matches!(client.make("/made", Content::None).await, Err(CallError::Silent(_))));
            assert!(client.has_latecomers());
            client.settle();
            // The caller goes away.
            let patience = Duration::from_millis(100);
            tokio::time::timeout(patience, client.make("/late", Content::None)).await.unwrap_err();
            assert!(client.clone().has_latecomers());
        });
    }

    #[test]
    fn a_refusal_has_the_engines_words_without_control_characters() {
        let error = refusal(StatusCode::CONFLICT, b"{\"message\":\"in use\\u001b[1m\"}");
        assert_eq!(error.to_string(), "the engine answered 409: in use[1m");
        assert!(error.is_done_already() && !error.is_absent());
        assert!(refusal(StatusCode::NOT_FOUND, b"no such").is_absent());
    }

    #[test]
    fn a_query_cannot_be_extended_by_its_value() {
        assert_eq!(escaped("{\"a\":[\"b=c&d\"]}"), "%7B%22a%22%3A%5B%22b%3Dc%26d%22%5D%7D");
    }
}
