//! `/mcp/ws`: the same protocol over a WebSocket, one message per frame.
//!
//! The frames are converted to the lines of the stdio transport and back, so every bound of that transport
//! applies here too. The connection keeps its slot. It is busy while a request has no answer; a subscription
//! is such a request. The end of the connection ends its runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use engine::Caller;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use rmcp::ServiceExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::App;
use super::body::BODY_BYTES_MAX;
use super::callers::Credential;
use super::connections::Connection;
use super::meter::Meter;
use super::metrics::Refusal;
use super::oauth::ScopeChallenge;
use mcp::file_urls::FileUrls;
use mcp::message::{self, Read};
use mcp::transport::Lines;

/// The path of the route.
pub(crate) const PATH: &str = "/mcp/ws";
/// The only subprotocol. A page offers it beside the one with its token, which the gate takes away.
const PROTOCOL: &str = "mcp";
const BUFFER_BYTES: usize = 64 << 10;
/// Upper bound on answers that the peer has not read yet.
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// Refusals that the peer has not read yet; a peer that sends more without reading waits.
const REFUSALS_MAX: usize = 16;
const PING_PAUSE: Duration = Duration::from_secs(15);
/// A peer that does not answer a ping within this time is gone.
const PONG_PATIENCE: Duration = Duration::from_secs(45);
/// Maximum time for each step of closing a connection.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The route.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    (Extension(caller), Extension(credential)): (Extension<Caller>, Extension<Credential>),
    Extension(connection): Extension<Connection>,
    (file_urls, scopes): (Option<Extension<FileUrls>>, Option<Extension<ScopeChallenge>>),
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade
        .protocols([PROTOCOL])
        .max_message_size(BODY_BYTES_MAX)
        .max_frame_size(BODY_BYTES_MAX)
        .max_write_buffer_size(UNSENT_BYTES_MAX)
        .on_upgrade(move |socket| {
            let file_urls = file_urls.map(|Extension(file_urls)| file_urls);
            let scopes = scopes.map(|Extension(scopes)| scopes);
            let peer = Peer { caller, file_urls, scopes, connection, credential };
            converse(app, peer, socket)
        })
}

/// The other end of the connection.
struct Peer {
    caller: Caller,
    file_urls: Option<FileUrls>,
    /// Refuses calls for which an access token lacks a scope.
    scopes: Option<ScopeChallenge>,
    connection: Connection,
    /// What the peer showed; it does so only once.
    credential: Credential,
}

async fn converse(app: Arc<App>, peer: Peer, socket: WebSocket) {
    let Peer { caller, file_urls, scopes, connection: Connection { slot, meter }, credential } = peer;
    let (inside, outside) = tokio::io::duplex(BUFFER_BYTES);
    let (read, write) = tokio::io::split(inside);
    let (ending, mut ended) = watch::channel(None);
    let own_slot = Arc::clone(&slot);
    let lines = Lines::new(read, write, ending, || false)
        .for_caller(caller)
        .with_file_urls(file_urls)
        .counting(Arc::new(move || Box::new(own_slot.begin())));
    let _open = Open::new(&app);
    let (server, runs_over) = (Arc::clone(&app.server), app.runs_over.clone());
    let serving = async move {
        // A peer that disconnects before its first message has nothing to end.
        let Ok(running) = server.serve(lines).await else { return };
        let cancel = running.cancellation_token();
        let served = running.waiting();
        tokio::pin!(served);
        tokio::select! {
            _ = &mut served => return,
            _ = ended.wait_for(Option::is_some) => {}
            // Pending answers are still sent: the frames end after the last line.
            () = runs_over.cancelled() => {}
        }
        cancel.cancel();
        tokio::time::timeout(END_PATIENCE, served).await.map(drop).unwrap_or_default();
    };
    let serving = tokio::spawn(serving);
    let (mut sink, stream) = socket.split();
    let (from_server, to_server) = tokio::io::split(outside);
    let (heard, hearing) = watch::channel(Instant::now());
    let (refusals, refused) = mpsc::channel(REFUSALS_MAX);
    let checks = Checks { scopes, refusals };
    let is_ended_by_peer = tokio::select! {
        () = take(stream, to_server, (heard, checks), &meter) => true,
        () = give(&mut sink, from_server, hearing, refused) => true,
        () = credential.ended() => false,
        () = slot.must_leave() => {
            app.counters.refused(Refusal::Idle);
            false
        }
        () = app.closed.cancelled() => false,
    };
    let goodbye = async move {
        // The library has queued the answer to a close frame. Without it a browser reports an abnormal end. Otherwise the
        // connection ends here, before the runs do.
        if is_ended_by_peer {
            tokio::time::timeout(END_PATIENCE, sink.flush()).await.map(drop).unwrap_or_default();
        }
    };
    // The lines end with the pipe, and with them every run of this connection.
    let ended = async { tokio::time::timeout(END_PATIENCE, serving).await.map(drop).unwrap_or_default() };
    tokio::join!(goodbye, ended);
}

/// Counts an open WebSocket or attached command: the server's shutdown waits for its last answer.
pub(crate) struct Open(Arc<App>);

impl Open {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        app.sockets.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(app))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.sockets.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What checks the messages of a peer before they become lines.
struct Checks {
    scopes: Option<ScopeChallenge>,
    /// Answers to messages that go no further.
    refusals: mpsc::Sender<String>,
}

impl Checks {
    /// The answer to a message for which the peer's access token lacks a scope.
    fn refusal(&self, bytes: &[u8]) -> Option<String> {
        let scopes = self.scopes.as_ref()?;
        let lacking = match message::read(bytes) {
            Read::Message(message) => scopes.lacking(&message),
            Read::Repaired(call) => match message::read(&call.text) {
                Read::Message(message) => scopes.lacking(&message),
                _ => None,
            },
            _ => None,
        };
        lacking.map(|lacking| lacking.error().to_string())
    }
}

/// Converts frames to lines.
async fn take(
    mut frames: SplitStream<WebSocket>,
    mut lines: WriteHalf<DuplexStream>,
    (heard, checks): (watch::Sender<Instant>, Checks),
    meter: &Meter,
) {
    loop {
        meter.begin();
        let Some(Ok(frame)) = frames.next().await else { return };
        heard.send_replace(Instant::now());
        let bytes = match frame {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        if let Some(refusal) = checks.refusal(&bytes) {
            if checks.refusals.send(refusal).await.is_err() {
                return;
            }
            continue;
        }
        // A line end has no meaning outside of JSON strings, and cannot occur inside them.
        let mut line: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect();
        line.push(b'\n');
        if lines.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Converts lines to frames. Pings a silent peer at intervals.
async fn give(
    frames: &mut SplitSink<WebSocket, Message>,
    lines: ReadHalf<DuplexStream>,
    heard: watch::Receiver<Instant>,
    mut refused: mpsc::Receiver<String>,
) {
    let mut lines = BufReader::new(lines).lines();
    let mut pause = tokio::time::interval(PING_PAUSE);
    loop {
        let frame = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => Message::Text(line.into()),
                _ => break,
            },
            Some(refusal) = refused.recv() => Message::Text(refusal.into()),
            _ = pause.tick() => {
                if heard.borrow().elapsed() > PONG_PATIENCE {
                    return;
                }
                Message::Ping(Bytes::new())
            }
        };
        match tokio::time::timeout(PONG_PATIENCE, frames.send(frame)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
    // The peer may no longer read the close frame.
    tokio::time::timeout(END_PATIENCE, frames.close()).await.map(drop).unwrap_or_default();
}
