//! The rest of a request that is answered before all of its body was read.
//!
//! Clients write head and body apart, and a refusal needs the head only. A connection with an unread rest cannot be
//! reused. If it ends without a word, a client that sends its next request there gets no answer, for example
//! during a login. Therefore [`connections`](super::connections) reads a small rest before it answers. A connection whose
//! rest is large, slow or not to be asked for ends, and the answer says so.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

/// The most bytes that are read of a rest.
const REST_BYTES_MAX: usize = 64 << 10;
/// How long a rest may take.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// A body that leaves its unread rest behind.
pub(crate) struct ReadBody {
    /// `None` once its end, or an error, was read.
    inner: Option<Incoming>,
    rest: Arc<Mutex<Option<Incoming>>>,
}

/// Where the rest of a body will be.
pub(crate) struct Rest {
    body: Arc<Mutex<Option<Incoming>>>,
    /// Whether the client sends its body only when it is asked for.
    must_be_asked: bool,
}

/// A body, and the place of its rest.
pub(crate) fn watched(headers: &HeaderMap, body: Incoming) -> (ReadBody, Rest) {
    let rest = Arc::new(Mutex::new(None));
    let must_be_asked = headers.contains_key(EXPECT);
    let inner = Some(body).filter(|body| !body.is_end_stream());
    (ReadBody { inner, rest: Arc::clone(&rest) }, Rest { body: rest, must_be_asked })
}

impl Rest {
    /// Reads what the handler left. Returns whether the connection can carry another request.
    pub(crate) async fn read(self) -> bool {
        let left = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        match left {
            None => true,
            Some(_) if self.must_be_asked => false,
            Some(body) => tokio::time::timeout(REST_PATIENCE, to_the_end(body)).await.unwrap_or(false),
        }
    }
}

async fn to_the_end(mut body: Incoming) -> bool {
    let mut room = REST_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = room.checked_sub(bytes) else { return false };
        room = left;
    }
    true
}

impl Body for ReadBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *inner).poll_frame(context);
        let is_over = match &polled {
            Poll::Ready(None | Some(Err(_))) => true,
            Poll::Ready(Some(Ok(_))) => inner.is_end_stream(),
            Poll::Pending => false,
        };
        if is_over {
            self.inner = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for ReadBody {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(inner);
        }
    }
}
