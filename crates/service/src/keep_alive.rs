//! Keeps a connection alive while a call runs without news.
//!
//! The library opens a stream of the newer era with the first message, because the status of the answer must be
//! known by then. Proxies and clients give up on an answer that does not begin. So a call that has been silent
//! for a while gets its stream from here: status 200 and a comment now and then, and the answer as its event
//! when it comes. By then every check that could have given another status has long been made.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response};
use futures_util::{Stream, StreamExt, stream};
use http_body_util::BodyExt;

/// Silence before the first comment and between two.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);
const EVENT_STREAM: &str = "text/event-stream";
const COMMENT: &[u8] = b": still running\n\n";
const NO_BUFFERING: &str = "x-accel-buffering";

/// An answer to come.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// Whether the caller can read a stream.
pub(crate) fn reads_streams(headers: &HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|text| text.contains(EVENT_STREAM))
}

/// The answer, or after a while a stream that will hold it. Dropping it drops the call.
pub(crate) async fn bridge(mut answer: Pending, pause: Duration) -> Response<Body> {
    tokio::select! {
        response = &mut answer => return response,
        () = tokio::time::sleep(pause) => {}
    }
    let events = stream::unfold(Some(answer), move |answer| async move {
        let mut answer = answer?;
        tokio::select! {
            response = &mut answer => Some((events_of(response).await, None)),
            () = tokio::time::sleep(pause) => Some((comment(), Some(answer))),
        }
    });
    let mut response = Response::new(Body::from_stream(comment().chain(events.flatten())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    response
}

fn comment() -> Pieces {
    Box::pin(stream::once(async { Ok(Bytes::from_static(COMMENT)) }))
}

/// What the answer is within a stream: its own events, or one event.
async fn events_of(response: Response<Body>) -> Pieces {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
        return Box::pin(response.into_body().into_data_stream());
    }
    let Ok(collected) = response.into_body().collect().await else {
        return Box::pin(stream::empty());
    };
    let mut event = b"data: ".to_vec();
    // A line end outside of strings means nothing in JSON, and would end the field of an event.
    event.extend(collected.to_bytes().iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }));
    event.extend_from_slice(b"\n\n");
    Box::pin(
        stream::once(async { Ok::<_, Infallible>(Bytes::from(event)) })
            .map(|piece| Ok(piece.unwrap_or_default())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response<Body>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    fn after(pause: Duration, response: Response<Body>) -> Pending {
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            response
        })
    }

    #[tokio::test]
    async fn a_quick_answer_is_left_alone() {
        let mut answer = Response::new(Body::from("{}"));
        *answer.status_mut() = axum::http::StatusCode::BAD_REQUEST;
        let response = bridge(after(Duration::ZERO, answer), PAUSE).await;
        assert_eq!(response.status(), 400);
        assert_eq!(text(response).await, "{}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_becomes_an_event_after_signs_of_life() {
        let mut answer = Response::new(Body::from("{\"a\":\n1}"));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = bridge(after(PAUSE * 5 / 2, answer), PAUSE).await;
        assert_eq!(response.headers()[CONTENT_TYPE], EVENT_STREAM);
        assert_eq!(text(response).await, ": still running\n\n: still running\n\ndata: {\"a\": 1}\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_stream_is_passed_on() {
        let mut answer = Response::new(Body::from("data: 1\n\n"));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        let response = bridge(after(PAUSE * 3 / 2, answer), PAUSE).await;
        assert_eq!(text(response).await, ": still running\n\ndata: 1\n\n");
    }
}
