//! MCP messages as lines over a pair of byte streams.
//!
//! The transport expects an adversarial peer:
//! - A line has a maximum length.
//! - A message that cannot be parsed is answered with an error ([`super::message`]).
//! - A request whose id is still in use is refused.
//! - While the peer does not read, the transport takes its next message only after earlier answers are
//!   written. Memory then grows on neither side.
//! - The end of the stream, or a peer that cannot be written to, ends every run at once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::{Caller, Stop};
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ClientRequest, ErrorData, GetMeta, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, Notify, watch};

use super::message::{self, Incoming, Read, RefusedMessage};
use super::recover_request_id::{self, END_BYTES};
use crate::file_urls::FileUrls;

/// The longest message: 16 MB of inputs in base64, 1 MB of code and variables each, and a margin.
const LINE_BYTES_MAX: usize = 32 << 20;
/// A larger line buffer is freed after use.
const LINE_BYTES_KEPT: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// Bytes of unread answers after which the transport stops taking messages.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Maximum number of unanswered requests.
const IN_FLIGHT_MAX: usize = 512;
/// Interval of checks whether a peer that does not read is still connected.
const HANG_UP_PAUSE: Duration = Duration::from_millis(500);

type Outgoing = TxJsonRpcMessage<RoleServer>;
/// A guard held while a request is in progress.
pub type InProgress = Box<dyn Send + Sync>;
/// Makes a guard for a request in progress.
pub type Counting = Arc<dyn Fn() -> InProgress + Send + Sync>;

/// The transport over lines: `palisade mcp`, and each WebSocket.
pub struct Lines<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// First and last bytes of an oversized line while the rest is discarded.
    too_long: Option<(Vec<u8>, Vec<u8>)>,
    write: Arc<Mutex<Option<W>>>,
    unsent: Arc<Unsent>,
    in_flight: HashMap<RequestId, Option<InProgress>>,
    /// Called for every request in progress, if the server counts them.
    counting: Option<Counting>,
    /// Whether the library has settled the era. Before that, the library quits on anything that is not a
    /// request.
    has_begun: bool,
    ending: watch::Sender<Option<Stop>>,
    /// Whether the peer closed its end; called while nothing is read.
    has_hung_up: fn() -> bool,
    /// The caller of these messages.
    caller: Caller,
    /// URLs of the caller's files, if the transport has them.
    file_urls: Option<FileUrls>,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Reads and writes these two streams. `ending` receives the reason when the peer is gone.
    pub fn new(read: R, write: W, ending: watch::Sender<Option<Stop>>, has_hung_up: fn() -> bool) -> Self {
        Self {
            read: BufReader::with_capacity(READ_BYTES, read),
            line: Vec::new(),
            too_long: None,
            write: Arc::new(Mutex::new(Some(write))),
            unsent: Arc::default(),
            in_flight: HashMap::new(),
            counting: None,
            has_begun: false,
            ending,
            has_hung_up,
            caller: Caller::local(),
            file_urls: None,
        }
    }

    /// Sets a principal other than the local user.
    pub fn for_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Sets the file URLs for a peer that can reach this server by HTTP.
    pub fn with_file_urls(self, file_urls: Option<FileUrls>) -> Self {
        Self { file_urls, ..self }
    }

    /// Sets the counter of requests in progress.
    pub fn counting(self, counting: Counting) -> Self {
        Self { counting: Some(counting), ..self }
    }

    /// Waits until the peer has read enough. Returns false if the peer disconnected instead.
    async fn until_room(&mut self) -> bool {
        while tokio::time::timeout(HANG_UP_PAUSE, self.unsent.has_room()).await.is_err() {
            if (self.has_hung_up)() {
                return false;
            }
        }
        true
    }

    /// Reads until a line is complete; `None` at the end of the stream. Safe to cancel, because partial input
    /// is kept.
    async fn next_line(&mut self) -> Option<Line> {
        loop {
            let available = self.read.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let newline = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..newline.unwrap_or(available.len())];
            let used = newline.map_or(available.len(), |at| at + 1);
            match &mut self.too_long {
                Some((_, tail)) => keep_end(tail, piece),
                None if self.line.len() + piece.len() > LINE_BYTES_MAX => {
                    let mut tail = self.line.split_off(self.line.len().saturating_sub(END_BYTES));
                    keep_end(&mut tail, piece);
                    let mut head = std::mem::take(&mut self.line);
                    head.truncate(END_BYTES);
                    head.shrink_to_fit();
                    self.too_long = Some((head, tail));
                }
                None => self.line.extend_from_slice(piece),
            }
            self.read.consume(used);
            if newline.is_some() {
                return Some(match self.too_long.take() {
                    Some((head, tail)) => Line::TooLong(recover_request_id::request_id(&head, Some(&tail))),
                    None => Line::Whole,
                });
            }
        }
    }

    /// Parses a line into a message. This method also answers messages that cannot be parsed.
    fn understand(&mut self, line: Line) -> Option<Incoming> {
        let read = match line {
            Line::Whole => message::read(&self.line),
            Line::TooLong(id) => {
                let message = format!("the message is longer than {LINE_BYTES_MAX} bytes");
                Read::Refused(RefusedMessage { id, error: ErrorData::invalid_request(message, None) })
            }
        };
        self.line.clear();
        self.line.shrink_to(LINE_BYTES_KEPT);
        match read {
            Read::Message(message) => self.admit(*message),
            Read::Repaired(call) => {
                // The text was made from a message that was just read.
                let mut message: Incoming = serde_json::from_slice(&call.text).ok()?;
                if let Some(complaint) = call.complaint {
                    message.insert_extension(complaint);
                }
                self.admit(message)
            }
            Read::Refused(refused) => {
                tracing::debug!(code = refused.error.code.0, "message_refused");
                // A request of this id that is in flight is another one, which gets its own answer.
                tokio::spawn(self.write_text(serde_json::to_vec(&refused.answer())));
                None
            }
            Read::Nothing | Read::Ignored => None,
        }
    }

    fn admit(&mut self, message: Incoming) -> Option<Incoming> {
        match &message {
            JsonRpcMessage::Request(asked) => {
                let refusal = if self.in_flight.contains_key(&asked.id) {
                    "a request with this id is not answered yet"
                } else if self.in_flight.len() >= IN_FLIGHT_MAX {
                    "too many requests are unanswered; wait for answers"
                } else {
                    self.has_begun |= settles_era(&asked.request);
                    let held = self.counting.as_ref().map(|begin| begin());
                    self.in_flight.insert(asked.id.clone(), held);
                    return Some(message);
                };
                let id = asked.id.clone();
                self.reply_aside(ErrorData::invalid_request(refusal, None), Some(id));
                None
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // The library drops the answer to a cancelled request.
                    self.in_flight.remove(id);
                }
                self.has_begun.then_some(message)
            }
            _ => self.has_begun.then_some(message),
        }
    }

    /// Sends a reply that leaves the request of the same id in flight.
    fn reply_aside(&mut self, error: ErrorData, id: Option<RequestId>) {
        tokio::spawn(self.write_message(&JsonRpcMessage::error(error, id)));
    }

    fn write_message(&self, message: &Outgoing) -> impl Future<Output = io::Result<()>> + Send + use<R, W> {
        self.write_text(serde_json::to_vec(message))
    }

    fn write_text(
        &self,
        text: serde_json::Result<Vec<u8>>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<R, W> {
        let text = text.map(|mut text| {
            text.push(b'\n');
            text
        });
        let waiting = Waiting::new(&self.unsent, text.as_ref().map_or(0, Vec::len));
        let (write, ending) = (Arc::clone(&self.write), self.ending.clone());
        async move {
            let text = text?;
            let mut write = write.lock().await;
            let Some(open) = write.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            let written = async {
                open.write_all(&text).await?;
                open.flush().await
            };
            let written = written.await;
            drop(waiting);
            if written.is_err() {
                end(&ending, Stop::Cancelled);
            }
            written
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => self.in_flight.remove(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref().and_then(|id| self.in_flight.remove(id)),
            _ => None,
        };
        let written = self.write_message(&message);
        async move {
            let written = written.await;
            drop(answered);
            written
        }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            let is_open = self.until_room().await;
            let Some(line) = (if is_open { self.next_line().await } else { None }) else {
                end(&self.ending, Stop::Cancelled);
                return None;
            };
            if let Some(mut message) = self.understand(line) {
                message.insert_extension(self.caller.clone());
                if let Some(file_urls) = &self.file_urls {
                    message.insert_extension(file_urls.clone());
                }
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.lock().await.take();
        Ok(())
    }
}

/// Ends every run for this reason, unless an earlier reason is set.
pub fn end(ending: &watch::Sender<Option<Stop>>, why: Stop) {
    ending.send_if_modified(|stop| {
        let is_first = stop.is_none();
        stop.get_or_insert(why);
        is_first
    });
}

/// Mirrors the library's condition: `initialize`, or a request that carries its own protocol version.
fn settles_era(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        other => {
            let meta = other.get_meta();
            let is_known = meta.protocol_version().is_some_and(|version| super::VERSIONS.contains(&version));
            is_known && meta.missing_required_keys(&rmcp::model::ProtocolVersion::V_2026_07_28).is_empty()
        }
    }
}

enum Line {
    /// The line is in the buffer.
    Whole,
    /// The line was discarded.
    TooLong(Option<RequestId>),
}

fn keep_end(tail: &mut Vec<u8>, piece: &[u8]) {
    tail.extend_from_slice(&piece[piece.len().saturating_sub(END_BYTES)..]);
    tail.drain(..tail.len().saturating_sub(END_BYTES));
}

/// Counts the bytes that wait to be written.
#[derive(Debug, Default)]
struct Unsent {
    bytes: AtomicUsize,
    fell: Notify,
}

impl Unsent {
    async fn has_room(&self) {
        loop {
            let fell = self.fell.notified();
            if self.bytes.load(Ordering::Acquire) < UNSENT_BYTES_MAX {
                return;
            }
            fell.await;
        }
    }
}

struct Waiting {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Waiting {
    fn new(unsent: &Arc<Unsent>, bytes: usize) -> Self {
        unsent.bytes.fetch_add(bytes, Ordering::AcqRel);
        Self { unsent: Arc::clone(unsent), bytes }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.unsent.fell.notify_waiters();
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
