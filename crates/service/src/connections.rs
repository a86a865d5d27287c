//! Accepts connections and serves HTTP/1.1 on each, within limits of number and time.
//!
//! ```text
//! accept -> slot (see [`super::connection_slots`]) -> TLS, bounded -> request head, bounded -> router -> ... -> gone
//! ```
//! A connection ends when its peer disconnects, when a request head takes too long, when its slot is needed,
//! or when the server ends. The kernel detects a peer that vanished without closing the connection
//! ([`watch_peer`]).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONNECTION;
use axum::http::{Extensions, HeaderValue, Request};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::body::BodyBudget;
use super::connection_slots::{AllBusy, ConnectionSlot, ConnectionSlots};
use super::control::{self, FromOwner, Peer};
use super::listen::Listener;
use super::meter::{Meter, Metered};
use super::metrics::{Counters, Refusal};
use super::tls::Tls;
use super::unread;

/// Maximum time for a request head, including the idle time before it.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
const TLS_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a request head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Pause when no file descriptor is available, because `accept` would fail again immediately.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The peer is considered dead if it does not acknowledge data within this time.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// State that a connection needs.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) slots: Arc<ConnectionSlots>,
    pub(crate) bodies: BodyBudget,
    pub(crate) counters: Arc<Counters>,
    /// Cancelled when no new connections and requests are accepted.
    pub(crate) closing: CancellationToken,
    /// Cancelled when every connection must end.
    pub(crate) closed: CancellationToken,
}

/// State that a connection keeps when it becomes a WebSocket.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) slot: Arc<ConnectionSlot>,
    pub(crate) meter: Arc<Meter>,
}

/// Message for a caller with a token when the server has no slot for another such connection.
pub(crate) const ALL_BUSY: &str = "all connections that this server allows (serve.connections_max) have a request in progress; try again later";

/// Marks the connection of a request as proven. A request without a connection needs no slot.
pub(crate) fn prove(request: &Extensions) -> Result<(), AllBusy> {
    request.get::<Connection>().map_or(Ok(()), |connection| connection.slot.prove())
}

/// Accepts connections until the server closes.
pub(crate) async fn accept_all(listener: Listener, serving: Serving) {
    loop {
        let accepted = tokio::select! {
            () = serving.closing.cancelled() => return,
            accepted = accept(&listener) => accepted,
        };
        let stream = match accepted {
            Ok(Some(stream)) => stream,
            Ok(None) => {
                serving.counters.refused(Refusal::Peer);
                continue;
            }
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = serving.slots.take() else {
            serving.counters.refused(Refusal::Connection);
            continue;
        };
        tokio::spawn(serve_one(stream, slot, serving.clone()));
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

enum Accepted {
    Tcp(TcpStream),
    Unix(tokio::net::UnixStream),
    Control(tokio::net::UnixStream, Peer),
}

/// The next connection; `None` for a peer that is none of the proxies.
async fn accept(listener: &Listener) -> io::Result<Option<Accepted>> {
    let accepted = match listener {
        Listener::Tcp { listener, proxies } => {
            let (stream, peer) = listener.accept().await?;
            if !proxies.is_empty() && !proxies.iter().any(|proxy| proxy.contains(peer.ip())) {
                return Ok(None);
            }
            watch_peer(&stream)?;
            Accepted::Tcp(stream)
        }
        Listener::Unix { listener, .. } => Accepted::Unix(listener.accept().await?.0),
        Listener::Control { listener, .. } => {
            let (stream, _) = listener.accept().await?;
            let peer = control::peer(&stream);
            Accepted::Control(stream, peer)
        }
    };
    Ok(Some(accepted))
}

/// Sends small answers immediately, and lets the kernel detect a dead peer (tcp(7)).
fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, UNACKNOWLEDGED_MAX)?;
    let milliseconds = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, milliseconds)?;
    Ok(())
}

async fn serve_one(accepted: Accepted, slot: Arc<ConnectionSlot>, serving: Serving) {
    let mut router = serving.router;
    let mut owner = None;
    let stream: Box<dyn Duplex> = match (accepted, &serving.tls) {
        (Accepted::Unix(stream), _) => Box::new(stream),
        (Accepted::Control(stream, peer), _) => {
            owner = FromOwner::of(peer);
            if peer == Peer::Stranger {
                serving.counters.refused(Refusal::Token);
                router = control::refusing();
            }
            Box::new(stream)
        }
        (Accepted::Tcp(stream), None) => Box::new(stream),
        (Accepted::Tcp(stream), Some(tls)) => {
            match tokio::time::timeout(TLS_PATIENCE, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => Box::new(stream),
                _ => return serving.counters.refused(Refusal::Tls),
            }
        }
    };
    let meter = Meter::new(&serving.bodies);
    let stream = Metered { stream, meter: Arc::clone(&meter) };
    let connection = Connection { slot: Arc::clone(&slot), meter };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (router, busy) = (router.clone(), connection.slot.begin());
        let (head, body) = request.into_parts();
        let (body, rest) = unread::watched(&head.headers, body);
        let mut request = Request::from_parts(head, Body::new(body));
        request.extensions_mut().insert(connection.clone());
        if let Some(owner) = owner {
            request.extensions_mut().insert(owner);
        }
        async move {
            let mut response = router.oneshot(request).await?;
            if !rest.read().await {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Answer { body, guard: busy }))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(connection);
    let mut is_closing = false;
    loop {
        tokio::select! {
            // Every error here is an error of the peer or the network, so no recipient for a message is left.
            _ = &mut connection => return,
            () = slot.must_leave() => return serving.counters.refused(Refusal::Idle),
            () = serving.closed.cancelled() => return,
            () = serving.closing.cancelled(), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// An answer that keeps a guard of its request until its last byte is sent.
pub(crate) struct Answer<G> {
    pub(crate) body: Body,
    #[allow(dead_code, reason = "it is dropped with the answer")]
    pub(crate) guard: G,
}

impl<G: Unpin> HttpBody for Answer<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
