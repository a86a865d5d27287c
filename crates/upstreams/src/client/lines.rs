//! A connection by lines: one JSON message a line, in both directions, to a process or any byte stream.
//!
//! One task reads and one writes, so that a caller that gives up never cuts a line in two. The connection is over when the
//! stream ends, when a write fails, or when it is closed; every open request learns why. A line beyond [`LINE_BYTES_MAX`]
//! is passed over, and only its own request fails, if its number can be told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::era::{self, Era};
use super::message::{self, Incoming, too_large};
use super::{Answer, Bounds};
use crate::host::{ToolError, ToolErrorCode};

/// The longest line of a server.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;
/// How much of both ends of a longer line is kept, to find its number.
const FRAGMENT_BYTES: usize = 256;
/// The most open requests.
const OPEN_MAX: usize = 256;
/// The most messages that wait to be written.
const QUEUE_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;
/// Lines that wait together are written together up to this length.
const BATCH_BYTES: usize = 32 << 10;

/// What ends with the connection: a process.
pub(crate) trait Behind: Send + Sync {
    /// Ends it, and waits until it is gone.
    fn end(&self) -> sandbox::BoxFuture<'_, ()>;

    /// What it said last, in one line. May be empty.
    fn last_words(&self) -> String;
}

/// A connection.
pub(crate) struct LinePeer {
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Outgoing>,
    next_id: AtomicU64,
    behind: Box<dyn Behind>,
    /// Ends the tasks when the connection is dropped.
    _tasks: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    changed: AtomicBool,
    era: Mutex<Option<Era>>,
    /// Ends both tasks, which closes the streams.
    closing: CancellationToken,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Waiter>,
    ended: Option<ToolError>,
}

struct Waiter {
    tell: oneshot::Sender<Result<Answer, ToolError>>,
    bytes_max: usize,
}

struct Outgoing {
    line: Vec<u8>,
    /// Set when the first byte may have left.
    begun: Arc<AtomicBool>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection once, and tells every open request.
    fn end(&self, why: &str) {
        let mut state = self.state();
        if state.ended.is_none() {
            state.ended = Some(ToolError::new(ToolErrorCode::ServerEnded, why));
        }
        let error = ToolError::new(ToolErrorCode::ServerEnded, why).after_sending();
        for (_, waiter) in state.open.drain() {
            tell(waiter, Err(error.clone()));
        }
    }

    fn finish(&self, id: u64, outcome: Result<Answer, ToolError>) {
        // An unknown number is a late answer to a request that was given up, or an invention.
        let waiter = self.state().open.remove(&id);
        if let Some(waiter) = waiter {
            tell(waiter, outcome);
        }
    }

    /// The most bytes of the answer to an open request.
    fn bytes_max(&self, id: u64) -> Option<usize> {
        self.state().open.get(&id).map(|waiter| waiter.bytes_max)
    }
}

/// The receiver may have given up; then the answer is late.
fn tell(waiter: Waiter, outcome: Result<Answer, ToolError>) {
    drop(waiter.tell.send(outcome));
}

/// Removes the waiter of a request that is given up.
struct Open<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.state().open.remove(&self.id);
    }
}

impl LinePeer {
    /// Starts the tasks of a connection.
    pub(crate) fn new<R, W>(reader: R, writer: W, behind: Box<dyn Behind>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: AtomicBool::new(false),
            era: Mutex::new(None),
            closing: CancellationToken::new(),
        });
        let (outgoing, queue) = mpsc::channel(QUEUE_MAX);
        let mut tasks = JoinSet::new();
        let closing = shared.closing.clone();
        tasks.spawn(until(closing.clone(), write_all(writer, queue, Arc::clone(&shared))));
        tasks.spawn(until(closing, read_all(reader, Arc::clone(&shared), outgoing.clone())));
        Self { shared, outgoing, next_id: AtomicU64::new(1), behind, _tasks: tasks }
    }

    pub(crate) fn agree(&self, era: Era) {
        *self.shared.era.lock().unwrap_or_else(PoisonError::into_inner) = Some(era);
    }

    pub(crate) fn ended(&self) -> Option<ToolError> {
        self.shared.state().ended.clone()
    }

    pub(crate) fn take_changed(&self) -> bool {
        self.shared.changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.shared.changed.load(Ordering::Acquire)
    }

    pub(crate) fn set_changed(&self) {
        self.shared.changed.store(true, Ordering::Release);
    }

    /// Asks to be told when the tools change. The request stays open as long as the connection; nothing waits for its
    /// answer.
    pub(crate) fn subscribe(&self) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut params = Map::new();
        params.insert("notifications".to_owned(), json!({"toolsListChanged": true}));
        era::stamp(Some(Era::Stateless), &mut params);
        let line = message::request(id, "subscriptions/listen", params);
        drop(self.outgoing.try_send(Outgoing { line, begun: Arc::default() }));
    }

    pub(crate) async fn close(&self) {
        self.shared.end("the connection was closed");
        self.shared.closing.cancel();
        self.behind.end().await;
    }

    pub(crate) fn notify(&self, method: &str, params: Map<String, Value>) {
        let line = message::notification(method, params);
        // A full queue means that the server does not read; it misses a notification, no more.
        drop(self.outgoing.try_send(Outgoing { line, begun: Arc::default() }));
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        bounds: &Bounds,
    ) -> Result<Answer, ToolError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let agreed = *self.shared.era.lock().unwrap_or_else(PoisonError::into_inner);
        era::stamp(agreed, &mut params);
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.shared.state();
            if let Some(error) = &state.ended {
                return Err(self.with_last_words(error.clone()));
            }
            if state.open.len() >= OPEN_MAX {
                return Err(ToolError::new(ToolErrorCode::Busy, "too many calls of this server are open"));
            }
            state.open.insert(id, Waiter { tell, bytes_max: bounds.bytes_max });
        }
        let _open = Open { shared: &self.shared, id };
        let begun = Arc::new(AtomicBool::new(false));
        let line = message::request(id, method, params);
        let sent = async {
            let outgoing = Outgoing { line, begun: Arc::clone(&begun) };
            if self.outgoing.send(outgoing).await.is_err() {
                return Err(ToolError::new(ToolErrorCode::ServerEnded, "the connection is closed"));
            }
            told.await.unwrap_or_else(|_| Err(ToolError::new(ToolErrorCode::ServerEnded, "it ended")))
        };
        let outcome = tokio::select! {
            outcome = sent => outcome,
            error = bounds.passed() => {
                let reason = json!({"requestId": id, "reason": error.message});
                if begun.load(Ordering::Acquire) && let Value::Object(params) = reason {
                    self.notify("notifications/cancelled", params);
                }
                Err(error)
            }
        };
        outcome.map_err(|mut error| {
            error.may_have_run = begun.load(Ordering::Acquire);
            self.with_last_words(error)
        })
    }

    /// Adds what the process said last to the error about its end.
    fn with_last_words(&self, mut error: ToolError) -> ToolError {
        if error.code == ToolErrorCode::ServerEnded {
            let words = self.behind.last_words();
            if !words.is_empty() && !error.message.contains(&words) {
                error.message = format!("{}; it said last: {words}", error.message);
            }
        }
        error
    }
}

/// Runs a task until the connection is closed. Dropping the task drops its stream.
async fn until(closing: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = closing.cancelled() => {}
        () = task => {}
    }
}

async fn write_all<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Shared>,
) {
    while let Some(Outgoing { mut line, begun }) = queue.recv().await {
        begun.store(true, Ordering::Release);
        // What else waits goes with it: the server wakes once, and reads several requests.
        while line.len() < BATCH_BYTES
            && let Ok(next) = queue.try_recv()
        {
            next.begun.store(true, Ordering::Release);
            line.extend_from_slice(&next.line);
        }
        if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
            shared.end("the server stopped reading");
            return;
        }
    }
}

async fn read_all<R: AsyncRead + Unpin>(
    mut reader: R,
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Outgoing>,
) {
    let mut lines = LineBuffer::default();
    let mut piece = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(count) => lines.feed(&piece[..count], |line| dispatch(line, &shared, &outgoing)),
        }
    }
    shared.end("the server ended");
}

/// A line of a server, or the ends of one that was too long.
enum Line<'a> {
    Whole(&'a [u8]),
    TooLong { head: &'a [u8], tail: &'a [u8] },
}

/// Collects lines, keeping at most [`LINE_BYTES_MAX`] of one.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// The last bytes of a line that is too long.
    tail: Option<Vec<u8>>,
}

impl LineBuffer {
    fn feed(&mut self, mut piece: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            piece = rest;
            if self.bytes.is_empty() && self.tail.is_none() {
                each(Line::Whole(line));
                continue;
            }
            self.keep(line);
            match &self.tail {
                Some(tail) => each(Line::TooLong { head: &self.bytes, tail }),
                None => each(Line::Whole(&self.bytes)),
            }
            // One large answer must not keep its memory for the life of the connection.
            self.bytes = Vec::new();
            self.tail = None;
        }
        self.keep(piece);
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.tail.is_none() && self.bytes.len() + piece.len() <= LINE_BYTES_MAX {
            self.bytes.extend_from_slice(piece);
            return;
        }
        let tail = self.tail.get_or_insert_with(|| {
            self.bytes.truncate(FRAGMENT_BYTES);
            self.bytes.shrink_to_fit();
            Vec::new()
        });
        let from = piece.len().saturating_sub(FRAGMENT_BYTES);
        tail.extend_from_slice(&piece[from..]);
        let cut = tail.len().saturating_sub(FRAGMENT_BYTES);
        tail.drain(..cut);
    }
}

fn dispatch(line: Line<'_>, shared: &Shared, outgoing: &mpsc::Sender<Outgoing>) {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong { head, tail } => {
            let error = too_large(LINE_BYTES_MAX);
            match message::id_of_fragments(head, tail) {
                Some(id) => shared.finish(id, Err(error)),
                None => shared.end("the server sent a line that is too long"),
            }
            return;
        }
    };
    match message::read(line, &|id| shared.bytes_max(id)) {
        Incoming::Refused { id, error } => shared.finish(id, Err(error)),
        Incoming::Response { id, outcome } => {
            let bytes_max = shared.bytes_max(id).unwrap_or(LINE_BYTES_MAX);
            let outcome = match outcome {
                Ok(_) if line.len() > bytes_max => Err(too_large(bytes_max)),
                Ok(result) => Ok(Answer { result, bytes: line.len() }),
                Err(error) => Err(error.told()),
            };
            shared.finish(id, outcome);
        }
        Incoming::Request { id, method } => {
            let line = message::reply(&id, &method);
            // A server that asks faster than it reads gets no answers.
            drop(outgoing.try_send(Outgoing { line, begun: Arc::default() }));
        }
        Incoming::Notification { method } if method == "notifications/tools/list_changed" => {
            shared.changed.store(true, Ordering::Release);
        }
        Incoming::Notification { .. } => {}
        Incoming::Noise => {
            // A line that is no message, such as a log line, or one that is nested too deeply. If it was the answer to
            // a request, only that request fails.
            let edge = line.len().min(FRAGMENT_BYTES);
            let (head, tail) = (&line[..edge], &line[line.len() - edge..]);
            if let Some(id) = message::id_of_fragments(head, tail) {
                let error = ToolError::new(ToolErrorCode::ServerError, "the answer is no valid JSON message");
                shared.finish(id, Err(error.after_sending()));
            }
        }
    }
}
