//! Reads a request's body with bounds on its size, its time, and the memory of all bodies together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest body: 16 MB of inputs in base64, 1 MB of code and variables each, and a margin.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;
/// Upper bound on all bodies that are being read or answered.
const TOGETHER_BYTES_MAX: usize = 256 << 20;
const PIECE_BYTES: usize = 1 << 10;
/// Maximum time between two pieces of a body.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Maximum time for the whole body.
const WHOLE_MAX: Duration = Duration::from_secs(300);

/// The memory budget of all bodies.
#[derive(Clone)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// A complete body with its share of the budget.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
}

/// A share of the budget; dropping it returns the share.
#[derive(Default)]
pub(crate) struct Share {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Takes that many more bytes. The budget is charged for the total and not for each piece, so a body sent
    /// byte by byte costs no more than its size.
    pub(crate) fn grow(&mut self, room: &BodyBudget, bytes: usize) -> Result<(), BodyError> {
        self.bytes = self.bytes.saturating_add(bytes);
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let due = u32::try_from(self.bytes.div_ceil(PIECE_BYTES) - held).map_err(|_| BodyError::TooLarge)?;
        let more = Arc::clone(&room.0).try_acquire_many_owned(due).map_err(|_| BodyError::NoRoom)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

/// The reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    NoRoom,
    Broken,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOGETHER_BYTES_MAX / PIECE_BYTES)))
    }
}

impl BodyBudget {
    /// Reads the whole body.
    pub(crate) async fn read(&self, body: Body) -> Result<Held, BodyError> {
        tokio::time::timeout(WHOLE_MAX, self.collect(body)).await.unwrap_or(Err(BodyError::TooSlow))
    }

    async fn collect(&self, mut body: Body) -> Result<Held, BodyError> {
        if body.size_hint_lower() > BODY_BYTES_MAX as u64 {
            return Err(BodyError::TooLarge);
        }
        let (mut bytes, mut share) = (Vec::new(), Share::default());
        loop {
            let next = tokio::time::timeout(PAUSE_MAX, body.frame()).await.map_err(|_| BodyError::TooSlow)?;
            let Some(frame) = next else { break };
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(BodyError::TooLarge);
            }
            share.grow(self, data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(Held { bytes: bytes.into(), share })
    }
}

trait Announced {
    fn size_hint_lower(&self) -> u64;
}

impl Announced for Body {
    fn size_hint_lower(&self) -> u64 {
        hyper::body::Body::size_hint(self).lower()
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let (status, reason) = match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 32 MiB"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
            Self::NoRoom => {
                (StatusCode::SERVICE_UNAVAILABLE, "other requests hold all the memory for bodies")
            }
            Self::Broken => (StatusCode::BAD_REQUEST, "the body broke off"),
        };
        let mut response = (status, format!("{reason}\n")).into_response();
        let headers = response.headers_mut();
        // The rest of the body stays unread, so the connection cannot be reused.
        headers.insert(axum::http::header::CONNECTION, axum::http::HeaderValue::from_static("close"));
        if self == Self::NoRoom {
            headers.insert(axum::http::header::RETRY_AFTER, axum::http::HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn pieces(count: usize, size: usize) -> Body {
        let piece = Bytes::from(vec![b'x'; size]);
        Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
    }

    #[tokio::test]
    async fn a_body_is_read_whole_and_its_room_comes_back() {
        let room = BodyBudget::default();
        let before = room.0.available_permits();
        let held = room.read(pieces(10, 10_000)).await.ok().unwrap();
        assert_eq!(held.bytes.len(), 100_000);
        assert!(room.0.available_permits() < before);
        drop(held);
        assert_eq!(room.0.available_permits(), before);
    }

    #[tokio::test]
    async fn too_much_is_refused_announced_or_not() {
        let room = BodyBudget::default();
        let announced = Body::from(vec![0; BODY_BYTES_MAX + 1]);
        assert_eq!(room.read(announced).await.err(), Some(BodyError::TooLarge));
        assert_eq!(room.read(pieces(33, 1 << 20)).await.err(), Some(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn a_body_in_tiny_pieces_takes_no_more_room_than_its_size() {
        let room = BodyBudget::default();
        let before = room.0.available_permits();
        let held = room.read(pieces(50_000, 1)).await.ok().unwrap();
        assert_eq!(before - room.0.available_permits(), held.bytes.len().div_ceil(PIECE_BYTES));
    }

    #[tokio::test]
    async fn all_bodies_together_are_bounded() {
        let room = BodyBudget::default();
        let mut held = Vec::new();
        let refusal = loop {
            match room.read(pieces(31, 1 << 20)).await {
                Ok(one) => held.push(one),
                Err(error) => break error,
            }
        };
        assert_eq!((refusal, held.len()), (BodyError::NoRoom, 8));
        drop(held.pop());
        assert!(room.read(pieces(31, 1 << 20)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_given_up() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(BodyBudget::default().read(body).await.err(), Some(BodyError::TooSlow));
    }
}
