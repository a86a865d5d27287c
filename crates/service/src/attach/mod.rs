//! `/attach`, on the control socket only: a command of the operator connected to a run as to a process.
//!
//! ```text
//! POST, Upgrade: palisade-attach -> 101 -> Begin -> Began ... Stdin, Resize / Output, Taken, InputWanted ... -> Ended
//! ```
//! MCP gives a program its whole standard input at once. `palisade sandbox exec -i`, `exec -t` and `palisade shell` need
//! input that arrives during the run, so they use this route ([`frame`]). Input has a window: the server holds at most
//! [`frame::WINDOW_BYTES`] that the program has not taken. Output has none, because the run waits for a command that
//! does not read. The end of the connection cancels the run.

pub mod frame;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::{Caller, RunEvent, Stdin, TerminalRequest, WindowSize};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use mcp::{AttachedRun, AttachedStreams};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use self::frame::{Frame, FrameReader, FromRun, ToRun, WINDOW_BYTES};
use super::App;
use super::callers::Credential;
use super::connections::Connection;
use super::control::FromOwner;
use super::gate::refusal_of;
use super::websocket::Open;

/// The path of the route.
pub const PATH: &str = "/attach";
/// The protocol to which the connection is upgraded.
pub const PROTOCOL: &str = "palisade-attach";
/// Time for the first frame.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);
/// Pieces and sizes that wait for the engine.
const WAITING_MAX: usize = 1;

/// The route.
pub(crate) async fn upgrade(State(app): State<Arc<App>>, mut request: Request) -> Response {
    let extensions = request.extensions();
    let (owner, caller) = (extensions.get::<FromOwner>(), extensions.get::<Caller>().cloned());
    let connection = extensions.get::<Connection>().cloned();
    let credential = extensions.get::<Credential>().cloned().unwrap_or_default();
    let (Some(_), Some(caller), Some(connection)) = (owner, caller, connection) else {
        return refusal_of(StatusCode::FORBIDDEN, "this path belongs to the control socket");
    };
    if !is_upgrade(request.headers()) {
        return refusal_of(StatusCode::UPGRADE_REQUIRED, "this path needs `Upgrade: palisade-attach`");
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        // A command that is gone by now has nothing to end.
        if let Ok(upgraded) = upgraded.await {
            tokio::select! {
                () = serve(&app, &caller, &connection, upgraded) => {}
                () = credential.ended() => {}
            }
        }
    });
    let answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, PROTOCOL)
        .body(Body::empty());
    answer.unwrap_or_else(|_| refusal_of(StatusCode::INTERNAL_SERVER_ERROR, "no answer could be made"))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()))
}

async fn serve(app: &Arc<App>, caller: &Caller, connection: &Connection, upgraded: Upgraded) {
    let _open = Open::new(app);
    let _busy = connection.slot.begin();
    let (read, write) = tokio::io::split(TokioIo::new(upgraded));
    let converse = converse(app, caller, FrameReader::new(read), write);
    tokio::select! {
        // The command is gone, or said what is no frame. Either way the run is dropped, which stops it.
        _ = converse => {}
        () = app.closed.cancelled() => {}
    }
}

async fn converse(
    app: &App,
    caller: &Caller,
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let first = tokio::time::timeout(BEGIN_PATIENCE, reader.next::<ToRun>()).await??;
    let Some(ToRun::Begin(json)) = first else { return Err(io::ErrorKind::InvalidData.into()) };
    let (inlet, begin) = Inlet::new(&json).ok_or(io::ErrorKind::InvalidData)?;
    let taken = inlet.taken.subscribe();
    let attached = match app.server.attach(caller, begin.arguments, begin.streams).await {
        Ok(attached) => attached,
        Err(refusal) => return send(&mut writer, &FromRun::Ended(refusal.to_string().into_bytes())).await,
    };
    // Both at once: a command that does not read must not keep the server from hearing that it is gone.
    tokio::select! {
        left = inlet.carry(reader) => left,
        told = tell(app, caller, attached, (taken, writer)) => told,
    }
}

/// Sends what the run says, and its result.
async fn tell(
    app: &App,
    caller: &Caller,
    mut run: AttachedRun,
    (mut taken, mut writer): (watch::Receiver<u64>, impl AsyncWrite + Unpin),
) -> io::Result<()> {
    send(&mut writer, &FromRun::Began(run.id().to_owned())).await?;
    let finished = run.finished();
    let mut told = 0;
    loop {
        let message = tokio::select! {
            biased;
            Ok(()) = taken.changed() => {
                let total = *taken.borrow_and_update();
                let bytes = u32::try_from(total - told).unwrap_or(u32::MAX);
                told = total;
                FromRun::Taken(bytes)
            }
            event = run.events.recv() => match event {
                Some(RunEvent::Output { stream, data }) => FromRun::Output(stream, data),
                Some(RunEvent::InputWanted) => FromRun::InputWanted,
                None => break,
            },
        };
        send(&mut writer, &message).await?;
    }
    let finished = finished.await;
    run.settle(finished.result.outcome).await;
    let ended = app.server.result_of(caller, &finished).await;
    send(&mut writer, &FromRun::Ended(ended.to_string().into_bytes())).await
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), message: &FromRun) -> io::Result<()> {
    writer.write_all(&message.encode()).await?;
    writer.flush().await
}

/// What the first frame asks for.
struct Begin {
    arguments: Map<String, Value>,
    streams: AttachedStreams,
}

/// Input on its way to the run.
struct Inlet {
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    sizes: Option<mpsc::Sender<WindowSize>>,
    held: Held,
    /// How many bytes the run took.
    taken: watch::Sender<u64>,
}

/// Input that the run has not taken yet.
#[derive(Default)]
struct Held {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    is_ended: bool,
    size: Option<WindowSize>,
}

impl Inlet {
    /// Reads the first frame; `None` if it is malformed.
    fn new(json: &[u8]) -> Option<(Self, Begin)> {
        let mut begin: Value = serde_json::from_slice(json).ok()?;
        let Value::Object(arguments) = begin["arguments"].take() else { return None };
        let (pieces, receiver) = mpsc::channel(WAITING_MAX);
        let (stdin, input) = match begin["input"].as_str()? {
            "none" => (None, Stdin::Empty),
            "stream" => (Some(pieces), Stdin::Stream(receiver)),
            "prompted" => (Some(pieces), Stdin::Prompted(receiver)),
            _ => return None,
        };
        let (sizes, resizes) = mpsc::channel(WAITING_MAX);
        let terminal = match begin["terminal"].take() {
            Value::Null => None,
            asked => Some(terminal(&asked, resizes)?),
        };
        let sizes = terminal.is_some().then_some(sizes);
        let inlet = Self { stdin, sizes, held: Held::default(), taken: watch::Sender::new(0) };
        Some((inlet, Begin { arguments, streams: AttachedStreams { stdin: input, terminal } }))
    }

    /// Carries input until the command is gone.
    async fn carry(mut self, mut reader: FrameReader<impl AsyncRead + Unpin>) -> io::Result<()> {
        loop {
            let Self { stdin, sizes, held, taken } = &mut self;
            if held.is_ended && held.pieces.is_empty() {
                *stdin = None;
            }
            let (has_piece, has_size) = (!held.pieces.is_empty(), held.size.is_some());
            tokio::select! {
                message = reader.next::<ToRun>() => match message? {
                    Some(message) => held.take(message)?,
                    None => return Ok(()),
                },
                place = reserve(stdin), if has_piece => {
                    let piece = held.pieces.pop_front().unwrap_or_default();
                    held.bytes -= piece.len();
                    taken.send_modify(|total| *total += piece.len() as u64);
                    // A run that takes no more input drops the rest.
                    if let Some(place) = place { place.send(piece) }
                }
                place = reserve(sizes), if has_size => {
                    if let (Some(place), Some(size)) = (place, held.size.take()) { place.send(size) }
                }
            }
        }
    }
}

impl Held {
    fn take(&mut self, message: ToRun) -> io::Result<()> {
        match message {
            ToRun::Stdin(piece) if piece.is_empty() => {}
            ToRun::Stdin(piece) if !self.is_ended && self.bytes + piece.len() <= WINDOW_BYTES => {
                self.bytes += piece.len();
                self.pieces.push_back(piece);
            }
            ToRun::StdinEnd => self.is_ended = true,
            ToRun::Resize(size) => self.size = Some(size),
            ToRun::Begin(_) | ToRun::Stdin(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }
}

/// A place in a channel; `None` if its receiver is gone.
async fn reserve<T>(sender: &Option<mpsc::Sender<T>>) -> Option<mpsc::Permit<'_, T>> {
    match sender {
        Some(sender) => sender.reserve().await.ok(),
        None => None,
    }
}

fn terminal(asked: &Value, resizes: mpsc::Receiver<WindowSize>) -> Option<TerminalRequest> {
    let number = |name: &str| asked[name].as_u64().and_then(|number| u16::try_from(number).ok());
    let words = asked["command"].as_array()?.iter().map(|word| word.as_str().map(str::to_owned));
    Some(TerminalRequest {
        command: words.collect::<Option<_>>()?,
        kind: asked["kind"].as_str()?.to_owned(),
        size: WindowSize { rows: number("rows")?, columns: number("columns")? },
        resizes,
    })
}
