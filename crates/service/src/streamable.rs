//! `/mcp`: streamable HTTP, both eras on one endpoint. The library implements the transport; this file adds
//! ownership of sessions, bounded bodies, errors for what cannot be parsed, and the bridge for silent calls.
//!
//! ```text
//! session of this principal? -> body, bounded -> media types, message -> library -> (silent for long: bridge) -> answer
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::Caller;
use http_body_util::Full;
use mcp::idempotency::IdempotencyHeader;
use mcp::message::{self, Incoming, Read, RefusedMessage};
use rmcp::ServerHandler;
use rmcp::model::ErrorData;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::App;
use super::body::BODY_BYTES_MAX;
use super::connections::Answer;
use super::gate;
use super::keep_alive::{self, Pending};
use super::metrics::Refusal;
use super::negotiate::{self, Accepts};
use super::oauth::ScopeChallenge;

/// The header of a call that must be carried out once (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Interval of comments on streams that the library opened.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The library's handler, independent of the server type.
pub(crate) type Library = Arc<dyn Fn(Request<Full<Bytes>>) -> Pending + Send + Sync>;

/// The gate checks Host and Origin for every route, so the library does not check them again.
pub(crate) fn library<H: ServerHandler>(
    handler: Arc<H>,
    sessions: &Arc<LocalSessionManager>,
    closed: &CancellationToken,
) -> Library {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .with_json_response(true)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_cancellation_token(closed.child_token());
    let service = StreamableHttpService::new(move || Ok(Arc::clone(&handler)), Arc::clone(sessions), config);
    Arc::new(move |request| {
        let service = service.clone();
        Box::pin(async move { service.handle(request).await.map(Body::new) })
    })
}

/// The route.
pub(crate) async fn handle(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
) -> Response {
    app.counters.requests.fetch_add(1, Ordering::Relaxed);
    let in_use = app.sessions.check(request.headers_mut(), &caller.principal);
    if let Some(in_use) = &in_use {
        request.extensions_mut().insert(in_use.session_end.clone());
    }
    let (mut parts, body) = request.into_parts();
    let held = match app.bodies.read(body).await {
        Ok(held) => held,
        Err(error) => {
            app.counters.refused(Refusal::Body);
            return error.into_response();
        }
    };
    if let Some(key) = idempotency_key(&parts.headers) {
        parts.extensions.insert(key);
    }
    app.counters.request_bytes.fetch_add(held.bytes.len() as u64, Ordering::Relaxed);
    let is_goodbye = parts.method == Method::DELETE;
    let accepts = Accepts::of(&parts.headers);
    let may_wait = parts.method == Method::POST && accepts.events;
    let body = match checked(&mut parts, accepts, held.bytes) {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let request = Request::from_parts(parts, Full::new(body));
    let (answer, share) = ((app.library)(request), held.share);
    let answer = Box::pin(async move {
        let response = answer.await;
        drop(share);
        response
    });
    let mut response =
        if may_wait { keep_alive::bridge(answer, keep_alive::PAUSE).await } else { answer.await };
    // The library answers 202 although the deletion is complete, and clients treat 202 as a failure.
    if is_goodbye && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
        // The library lets runs continue for a while; here the end of a session ends its runs.
        in_use.iter().for_each(|in_use| in_use.session_end.say());
    }
    app.sessions.learn(response.headers(), &caller).await;
    // The session is in use until the last byte of the answer, or the end of the stream.
    match in_use {
        Some(guard) => response.map(|body| Body::new(Answer { body, guard })),
        None => response,
    }
}

/// The idempotency key of a call. One that is sent several times, or is not text, is refused with the call.
fn idempotency_key(headers: &HeaderMap) -> Option<IdempotencyHeader> {
    let mut sent = headers.get_all(IDEMPOTENCY_KEY).iter();
    let first = sent.next()?;
    let only = if sent.next().is_none() { first.to_str().ok() } else { None };
    Some(IdempotencyHeader(only.map(str::to_owned)))
}

/// Checks the media types and the message, and returns the body for the library. The library would answer
/// what it cannot parse with 415 and a text.
fn checked(parts: &mut Parts, accepts: Accepts, body: Bytes) -> Result<Bytes, Box<Response>> {
    let refused = |status, reason| Err(Box::new(gate::refusal_of(status, reason)));
    let is_acceptable = match parts.method {
        Method::POST => accepts.json,
        Method::GET => accepts.events,
        _ => return Ok(body),
    };
    if !is_acceptable {
        let reason = "this answer is application/json or text/event-stream: accept both (header Accept)";
        return refused(StatusCode::NOT_ACCEPTABLE, reason);
    }
    if parts.method == Method::POST && !negotiate::sends_json(&parts.headers) {
        let reason = "send the message as application/json (header Content-Type)";
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
    }
    negotiate::spell_out(&mut parts.headers);
    if parts.method == Method::GET {
        return Ok(body);
    }
    match message::read(&body) {
        Read::Message(message) => {
            check_scope(parts, &message)?;
            Ok(body.slice_ref(message::trimmed(&body)))
        }
        Read::Repaired(call) => {
            if let Read::Message(message) = message::read(&call.text) {
                check_scope(parts, &message)?;
            }
            parts.headers.insert(CONTENT_LENGTH, call.text.len().into());
            if let Some(complaint) = call.complaint {
                parts.extensions.insert(complaint);
            }
            Ok(call.text.into())
        }
        Read::Refused(refused) => Err(Box::new(gate::json(StatusCode::BAD_REQUEST, &refused.answer()))),
        Read::Nothing | Read::Ignored => {
            let error = ErrorData::parse_error("the body holds no message", None);
            let refused = RefusedMessage { id: None, error };
            Err(Box::new(gate::json(StatusCode::BAD_REQUEST, &refused.answer())))
        }
    }
}

/// Refuses a call for which an access token lacks a scope, as long as the status can still tell it.
fn check_scope(parts: &Parts, message: &Incoming) -> Result<(), Box<Response>> {
    let challenge = parts.extensions.get::<ScopeChallenge>();
    match challenge.and_then(|challenge| challenge.lacking(message)) {
        Some(lacking) => Err(Box::new(lacking.response())),
        None => Ok(()),
    }
}
