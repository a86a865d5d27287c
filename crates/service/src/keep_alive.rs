//! Keeps a connection alive while a call runs without output.
//!
//! In the newer era the library opens a stream with the first message, because the response's status must be
//! known then. Proxies and clients time out on a response that does not begin. This module therefore opens
//! the stream of a call that has been silent for a while. It sends status 200 and periodic comments, and
//! later the answer as an event. By then every check that could have produced another status is complete.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use futures_util::{Stream, StreamExt, stream};
use http_body_util::BodyExt;

/// Silence before the first comment and between two comments.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);
const EVENT_STREAM: &str = "text/event-stream";
const COMMENT: &[u8] = b": still running\n\n";
const NO_BUFFERING: &str = "x-accel-buffering";

/// A future response.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// The response, or after `pause` a stream that will contain it. Dropping the future or the stream drops the
/// call.
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

/// The response as events: its own events, or one event with its body.
async fn events_of(response: Response<Body>) -> Pieces {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
        return Box::pin(response.into_body().into_data_stream());
    }
    let Ok(collected) = response.into_body().collect().await else {
        return Box::pin(stream::empty());
    };
    let mut event = b"data: ".to_vec();
    // A line end outside of JSON strings has no meaning, but it would end the event's field.
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
