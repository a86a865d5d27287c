//! One HTTP/1.1 request over the control socket, with hyper's client.
//!
//! A separate task drives the connection and ends with the [`Response`]. Dropping a response closes its
//! connection. The futures of [`Response::head`] and [`Response::piece`] can be dropped and called again
//! without losing a byte. A response can therefore be read while the user may press Ctrl-C. This module adds
//! to hyper: a timeout for a silent server, a maximum size of answers, and error messages.

use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Status of a successful request.
pub(crate) const OK: u16 = 200;
/// Maximum size of a head, and of unread data.
const READ_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of request pieces that wait to be written.
const PIECES_MAX: usize = 1;
/// A server that is silent for this time is gone: it sends a keep-alive every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The gate of every server accepts this host name.
const SERVER_NAME: HeaderValue = HeaderValue::from_static("localhost");

/// A request to the server.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) payload: Payload<'a>,
}

/// The body of a request.
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// A file of which exactly this length is sent, one piece at a time.
    File {
        file: File,
        size_bytes: u64,
    },
}

impl Payload<'_> {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size_bytes, .. } => *size_bytes,
        }
    }
}

type Head = ::http::Response<Incoming>;

/// A response: its head, and a body that still arrives.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: HeaderMap,
    state: State,
    /// The task that drives the connection until this is dropped.
    _connection: JoinSet<()>,
}

enum State {
    Head(Pin<Box<dyn Future<Output = hyper::Result<Head>> + Send>>),
    Body(Incoming),
    Over,
}

/// Sends a request. [`Response::head`] reads the head of its response, because the server may take long to
/// answer.
pub(crate) async fn exchange(stream: UnixStream, request: Request<'_>) -> io::Result<Response> {
    let (mut sender, driver) = http1::Builder::new()
        .max_buf_size(READ_BYTES_MAX)
        .handshake(TokioIo::new(Patient(stream)))
        .await
        .map_err(io::Error::other)?;
    let mut connection = JoinSet::new();
    connection.spawn(async move {
        // The response or its body reports the error.
        driver.await.ok();
    });
    let (body, pieces) = Channel::new(PIECES_MAX);
    let head = head(&request, pieces)?;
    let state = State::Head(Box::pin(sender.send_request(head)));
    let mut response = Response { status: 0, headers: HeaderMap::new(), state, _connection: connection };
    response.send(body, request.payload).await?;
    Ok(response)
}

fn head<B>(request: &Request<'_>, body: B) -> io::Result<::http::Request<B>> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let mut built = ::http::Request::builder()
        .method(request.method)
        .uri(request.path)
        .body(body)
        .map_err(|_| refused("a request to no address"))?;
    let headers = built.headers_mut();
    headers.insert(HOST, SERVER_NAME);
    for (name, value) in request.headers {
        let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        let (Ok(name), Ok(value)) = pair else {
            return Err(refused("a header with a control character"));
        };
        headers.append(name, value);
    }
    headers.insert(CONTENT_LENGTH, request.payload.size_bytes().into());
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(built)
}

impl Response {
    /// The first header of that name, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Sends the body, or as much as the server accepts. A server that refuses does not read the rest, and
    /// its response gives the reason.
    async fn send(&mut self, mut body: Sender<Bytes>, payload: Payload<'_>) -> io::Result<()> {
        let (file, size_bytes) = match payload {
            Payload::Bytes([]) => return Ok(()),
            Payload::Bytes(bytes) => {
                self.send_piece(&mut body, bytes).await?;
                return Ok(());
            }
            Payload::File { file, size_bytes } => (file, size_bytes),
        };
        let mut file = file.take(size_bytes);
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = size_bytes;
        while left > 0 {
            let count = file.read(&mut piece)?;
            if count == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter meanwhile",
                ));
            }
            if self.send_piece(&mut body, &piece[..count]).await? == Sent::Refused {
                return Ok(());
            }
            left -= count as u64;
        }
        Ok(())
    }

    async fn send_piece(&mut self, body: &mut Sender<Bytes>, piece: &[u8]) -> io::Result<Sent> {
        let sent = async {
            tokio::select! {
                biased;
                sent = body.send_data(Bytes::copy_from_slice(piece)) => {
                    Ok(if sent.is_ok() { Sent::Queued } else { Sent::Refused })
                }
                head = self.head() => head.map(|()| Sent::Refused),
            }
        };
        within_silence(sent).await?
    }

    /// Waits for the head. The future can be dropped and called again.
    pub(crate) async fn head(&mut self) -> io::Result<()> {
        let State::Head(waiting) = &mut self.state else { return Ok(()) };
        let answered = within_silence(waiting).await?;
        let head = answered.inspect_err(|_| self.state = State::Over).map_err(|error| {
            let is_closed = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
            match is_closed {
                true => broken_off("the server closed without an answer"),
                false => broken(&error),
            }
        });
        let (parts, body) = head?.into_parts();
        self.status = parts.status.as_u16();
        self.headers = parts.headers;
        self.state = State::Body(body);
        Ok(())
    }

    /// The next part of the body, or `None` at its end.
    pub(crate) async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        self.head().await?;
        let State::Body(body) = &mut self.state else { return Ok(None) };
        loop {
            match within_silence(body.frame()).await? {
                // Trailers are ignored.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    self.state = State::Over;
                    return Err(broken(&error));
                }
                None => {
                    self.state = State::Over;
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the whole body, up to that size.
    pub(crate) async fn collect(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            if whole.len() + piece.len() > bytes_max {
                return Err(too_long());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }
}

/// The result of sending a piece of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Queued,
    /// The server answered or closed before it read everything.
    Refused,
}

async fn within_silence<F: Future>(waiting: F) -> io::Result<F::Output> {
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the server has said nothing for a minute");
    tokio::time::timeout(SILENCE_MAX, waiting).await.map_err(silent)
}

/// The error message for a malformed answer.
fn broken(error: &hyper::Error) -> io::Error {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        _ if error.is_parse_too_large() => too_long(),
        _ if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
            broken_off("the answer broke off")
        }
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            broken_off("the answer broke off")
        }
        Some(kind @ (io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)) => {
            io::Error::new(kind, format!("the answer is not HTTP: {}", cause_of(error)))
        }
        Some(kind) => io::Error::new(kind, cause_of(error)),
        None => io::Error::new(io::ErrorKind::InvalidData, format!("the answer is not HTTP: {error}")),
    }
}

fn cause_of(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn broken_off(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is too long")
}

/// A stream that discards writes after the server closed its end. A server that refuses a request does not
/// read the rest and answers before it closes. Hyper would otherwise fail at the write and not read the
/// answer.
struct Patient(UnixStream);

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map(|written| match written {
            Err(error) if is_refusal(&error) => Ok(bytes.len()),
            other => other,
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
