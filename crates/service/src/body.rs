//! Reads a request's body: bounded in size, in time, and in what all bodies together may hold.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest body: 16 MB of inputs in base64, 1 MB of code and variables each, and room.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;
/// All bodies that are being read or answered.
const TOGETHER_BYTES_MAX: usize = 256 << 20;
const PIECE_BYTES: usize = 1 << 10;
/// Between two pieces of a body.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// From its first to its last.
const WHOLE_MAX: Duration = Duration::from_secs(300);

/// What all bodies may hold.
#[derive(Clone)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// A body that was read, with its share of the room.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
}

/// What somebody holds of the room; dropping it gives it back.
#[derive(Default)]
pub(crate) struct Share {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// So many bytes more. They count as a whole, not by the piece: what comes byte by byte has no more than its size.
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

/// Why a body was not read.
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
    /// The whole body.
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
        // What is left of the body is not read, so the connection cannot go on.
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
