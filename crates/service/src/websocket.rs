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
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::App;
use super::body::BODY_BYTES_MAX;
use super::connections::Connection;
use super::meter::Meter;
use super::metrics::Refusal;
use mcp::file_urls::FileUrls;
use mcp::transport::Lines;

/// The path of the route.
pub(crate) const PATH: &str = "/mcp/ws";
/// The only subprotocol. A page offers it beside the one with its token, which the gate takes away.
const PROTOCOL: &str = "mcp";
const BUFFER_BYTES: usize = 64 << 10;
/// Upper bound on answers that the peer has not read yet.
const UNSENT_BYTES_MAX: usize = 64 << 20;
const PING_PAUSE: Duration = Duration::from_secs(15);
/// A peer that does not answer a ping within this time is gone.
const PONG_PATIENCE: Duration = Duration::from_secs(45);
/// Maximum time for each step of closing a connection.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The route.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    file_urls: Option<Extension<FileUrls>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let token_in_force = app.token_in_force.get();
    upgrade
        .protocols([PROTOCOL])
        .max_message_size(BODY_BYTES_MAX)
        .max_frame_size(BODY_BYTES_MAX)
        .max_write_buffer_size(UNSENT_BYTES_MAX)
        .on_upgrade(move |socket| {
            let file_urls = file_urls.map(|Extension(file_urls)| file_urls);
            let peer = Peer { caller, file_urls, connection, token_in_force };
            converse(app, peer, socket)
        })
}

/// The other end of the connection.
struct Peer {
    caller: Caller,
    file_urls: Option<FileUrls>,
    connection: Connection,
    /// Cancelled when another token replaces the one that the peer showed.
    token_in_force: Arc<CancellationToken>,
}

async fn converse(app: Arc<App>, peer: Peer, socket: WebSocket) {
    let Peer { caller, file_urls, connection: Connection { slot, meter }, token_in_force } = peer;
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
    let (sink, stream) = socket.split();
    let (from_server, to_server) = tokio::io::split(outside);
    let (heard, hearing) = watch::channel(Instant::now());
    tokio::select! {
        () = take(stream, to_server, heard, &meter) => {}
        () = give(sink, from_server, hearing) => {}
        () = token_in_force.cancelled() => {}
        () = slot.must_leave() => app.counters.refused(Refusal::Idle),
        () = app.closed.cancelled() => {}
    }
    // The lines end with the pipe, and with them every run of this connection.
    tokio::time::timeout(END_PATIENCE, serving).await.map(drop).unwrap_or_default();
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

/// Converts frames to lines.
async fn take(
    mut frames: SplitStream<WebSocket>,
    mut lines: WriteHalf<DuplexStream>,
    heard: watch::Sender<Instant>,
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
    mut frames: SplitSink<WebSocket, Message>,
    lines: ReadHalf<DuplexStream>,
    heard: watch::Receiver<Instant>,
) {
    let mut lines = BufReader::new(lines).lines();
    let mut pause = tokio::time::interval(PING_PAUSE);
    loop {
        let frame = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => Message::Text(line.into()),
                _ => break,
            },
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
