//! A connection by streamable HTTP: one POST a message, answered by JSON or by an event stream.
//!
//! TLS is checked against the roots of this machine; plain http works on loopback only, also after the name was
//! resolved. Redirects are not followed: headers may be credentials. A request that a kept connection refused to take is
//! sent on a new one, because none of it left; every other failure after the first byte says that it may have arrived.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming as Body;
use hyper::client::conn::http1::SendRequest;
use serde_json::{Map, Value, json};

use super::era::{self, Era, HANDSHAKE_VERSION, STATELESS_VERSION};
use super::events::EventBuffer;
use super::message::{self, Incoming, too_large};
use super::{Answer, Bounds};
use crate::host::{ToolError, ToolErrorCode};
use crate::oauth::{Credential, login_required};
use crate::tls::Dialer;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The most connections that are kept for later requests.
const KEPT_MAX: usize = 8;
/// How long a notification may take.
const NOTIFY_PATIENCE: Duration = Duration::from_secs(5);
const NOTIFY_BYTES_MAX: usize = 64 << 10;

type Sender = SendRequest<Full<Bytes>>;

/// A server behind a URL.
pub(crate) struct HttpPeer {
    url: Uri,
    headers: HeaderMap,
    dialer: Dialer,
    /// Whose tokens are sent, unless `headers` has a credential.
    credential: Arc<Credential>,
    kept: Mutex<Vec<Sender>>,
    state: Mutex<State>,
    next_id: AtomicU64,
    changed: AtomicBool,
}

#[derive(Default, Clone)]
struct State {
    era: Option<Era>,
    session: Option<HeaderValue>,
}

/// What a message is, for its headers.
struct Envelope<'a> {
    method: &'a str,
    name: Option<&'a str>,
    /// The number of the request; `None` for a notification.
    id: Option<u64>,
}

fn failed(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorCode::ServerError, message)
}

impl HttpPeer {
    pub(crate) fn new(url: Uri, headers: HeaderMap, credential: Arc<Credential>) -> Self {
        Self {
            url,
            headers,
            dialer: credential.dialer.clone(),
            credential,
            kept: Mutex::default(),
            state: Mutex::default(),
            next_id: AtomicU64::new(1),
            changed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn agree(&self, era: Era) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).era = Some(era);
    }

    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    pub(crate) fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        mut params: Map<String, Value>,
        bounds: &Bounds,
    ) -> Result<Answer, ToolError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let era = self.state().era;
        era::stamp(era, &mut params);
        let name = ["name", "uri"].into_iter().find_map(|key| params.get(key)?.as_str());
        let name = name.filter(|_| matches!(method, "tools/call" | "resources/read")).map(str::to_owned);
        let body = Bytes::from(message::request(id, method, params));
        let envelope = Envelope { method, name: name.as_deref(), id: Some(id) };
        let begun = AtomicBool::new(false);
        let outcome = tokio::select! {
            outcome = self.exchange(&envelope, body, bounds, &begun) => outcome,
            error = bounds.passed() => {
                if begun.load(Ordering::Acquire) && era == Some(Era::Handshake)
                    && let Value::Object(params) = json!({"requestId": id, "reason": error.message})
                {
                    // In the other era the end of the connection says it.
                    self.notify("notifications/cancelled", params).await;
                }
                Err(error)
            }
        };
        outcome.map_err(|mut error| {
            error.may_have_run &= begun.load(Ordering::Acquire);
            error.may_have_run |= matches!(error.code, ToolErrorCode::TimedOut | ToolErrorCode::Cancelled)
                && begun.load(Ordering::Acquire);
            error
        })
    }

    pub(crate) async fn notify(&self, method: &str, params: Map<String, Value>) {
        let body = Bytes::from(message::notification(method, params));
        self.tell(method, body).await;
    }

    /// Sends a message that has no answer.
    async fn tell(&self, method: &str, body: Bytes) {
        let bounds = Bounds::until(Instant::now() + NOTIFY_PATIENCE, NOTIFY_BYTES_MAX);
        let envelope = Envelope { method, name: None, id: None };
        let begun = AtomicBool::new(false);
        tokio::select! {
            sent = self.post(&envelope, body, &begun) => match sent {
                Ok((response, sender)) => self.drain(response, sender, bounds.bytes_max).await,
                Err(error) => tracing::debug!(code = error.code.name(), "upstream_not_notified"),
            },
            _ = bounds.passed() => {}
        }
    }

    pub(crate) async fn close(&self) {
        let Some(session) = self.state().session else { return };
        let ended = async {
            let mut sender = self.dialer.connect(&self.url).await.ok()?;
            let bearer = self.bearer().await;
            let request = self.head(Method::DELETE, bearer.as_deref()).ok()?.header(SESSION, session);
            sender.send_request(request.body(Full::default()).ok()?).await.ok()
        };
        // A session that was not ended here expires at the server.
        drop(tokio::time::timeout(Duration::from_secs(1), ended).await);
    }

    /// The token for the next request, if it needs one.
    async fn bearer(&self) -> Option<String> {
        if self.headers.contains_key(AUTHORIZATION) { None } else { self.credential.bearer().await }
    }

    /// Credentials that results must not show.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.credential.secrets()
    }

    fn head(&self, method: Method, bearer: Option<&str>) -> Result<http::request::Builder, ToolError> {
        let authority = self.url.authority().map(|one| one.as_str()).unwrap_or_default();
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let mut builder = Request::builder().method(method).uri(path);
        let headers = builder.headers_mut().ok_or_else(|| failed("the URL cannot be used"))?;
        headers.extend(self.headers.clone());
        if let Some(bearer) = bearer {
            let mut value = HeaderValue::from_str(&format!("Bearer {bearer}"))
                .map_err(|_| failed("the token is no value of a header"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| failed("the host is no name"))?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("palisade/", env!("CARGO_PKG_VERSION"))));
        Ok(builder)
    }

    fn build(
        &self,
        envelope: &Envelope<'_>,
        body: Bytes,
        bearer: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, ToolError> {
        let State { era, session } = self.state();
        let mut builder = self.head(Method::POST, bearer)?;
        let headers = builder.headers_mut().ok_or_else(|| failed("the request cannot be made"))?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let is_stateless = era == Some(Era::Stateless) || envelope.method == "server/discover";
        if is_stateless {
            headers.insert(VERSION, HeaderValue::from_static(STATELESS_VERSION));
            let method = HeaderValue::from_str(envelope.method).map_err(|_| failed("no method"))?;
            headers.insert(METHOD, method);
            if let Some(name) = envelope.name.and_then(|name| HeaderValue::from_str(name).ok()) {
                headers.insert(NAME, name);
            }
        } else if envelope.method != "initialize" {
            headers.insert(VERSION, HeaderValue::from_static(HANDSHAKE_VERSION));
            headers.extend(session.map(|session| (SESSION, session)));
        }
        builder.body(Full::new(body)).map_err(|_| failed("the request cannot be made"))
    }

    /// Sends a message. A server that refuses the token has not executed the request: it is sent again with another
    /// token, if there is one.
    async fn post(
        &self,
        envelope: &Envelope<'_>,
        body: Bytes,
        begun: &AtomicBool,
    ) -> Result<(Response<Body>, Sender), ToolError> {
        let bearer = self.bearer().await;
        let sent = self.send(self.build(envelope, body.clone(), bearer.as_deref())?, begun).await?;
        if sent.0.status() != StatusCode::UNAUTHORIZED || self.headers.contains_key(AUTHORIZATION) {
            return Ok(sent);
        }
        let another = match &bearer {
            Some(refused) => self.credential.refreshed(refused).await,
            None => None,
        };
        match another {
            Some(another) => self.send(self.build(envelope, body, Some(&another))?, begun).await,
            None => {
                self.credential.look_again();
                Ok(sent)
            }
        }
    }

    /// Sends a request on a kept connection or a new one.
    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        begun: &AtomicBool,
    ) -> Result<(Response<Body>, Sender), ToolError> {
        loop {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) if sender.is_ready() => sender,
                Some(_) => continue,
                None => self.dialer.connect(&self.url).await?,
            };
            begun.store(true, Ordering::Release);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => {
                        begun.store(false, Ordering::Release);
                        request = unsent;
                    }
                    unsent => {
                        let message = format!("the connection failed: {}", error.into_error());
                        let error = ToolError::new(ToolErrorCode::ServerEnded, message);
                        return Err(if unsent.is_some() { error } else { error.after_sending() });
                    }
                },
            }
        }
    }

    async fn exchange(
        &self,
        envelope: &Envelope<'_>,
        body: Bytes,
        bounds: &Bounds,
        begun: &AtomicBool,
    ) -> Result<Answer, ToolError> {
        let (response, sender) = self.post(envelope, body, begun).await?;
        if envelope.method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).session = Some(session.clone());
        }
        let status = response.status();
        self.check_status(status)?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let answered = match is_stream {
            true => self.read_events(response, envelope.id, bounds).await,
            false => {
                let bytes = collect(response, bounds.bytes_max).await?;
                self.keep(sender);
                let of_own = |known| (Some(known) == envelope.id).then_some(bounds.bytes_max);
                Ok(answer_of(message::read(&bytes, &of_own), bytes.len(), envelope.id))
            }
        };
        match answered? {
            Some(outcome) => outcome,
            None if status.is_success() => {
                Err(failed("the server did not answer the request").after_sending())
            }
            None => Err(failed(format!("the server answered with status {}", status.as_u16()))),
        }
    }

    /// Statuses that decide without a body.
    fn check_status(&self, status: StatusCode) -> Result<(), ToolError> {
        let has_session = self.state().session.is_some();
        match status {
            StatusCode::UNAUTHORIZED => {
                let is_refused = self.headers.contains_key(AUTHORIZATION) || !self.secrets().is_empty();
                let what = if is_refused { "refused the credential" } else { "wants a login" };
                Err(login_required(&self.credential.server, what))
            }
            // The request was not executed: the session is unknown to the server.
            StatusCode::NOT_FOUND if has_session => {
                Err(ToolError::new(ToolErrorCode::ServerEnded, "the server ended the session"))
            }
            status if status.is_redirection() => Err(failed("the server answered with a redirect")),
            status if status.is_server_error() => {
                let message = format!("the server answered with status {}", status.as_u16());
                Err(ToolError::new(ToolErrorCode::ServerUnavailable, message).after_sending())
            }
            _ => Ok(()),
        }
    }

    async fn read_events(
        &self,
        response: Response<Body>,
        id: Option<u64>,
        bounds: &Bounds,
    ) -> Result<Option<Result<Answer, ToolError>>, ToolError> {
        let mut events = EventBuffer::new(bounds.bytes_max + 4096);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ended())?;
            let Ok(piece) = frame.into_data() else { continue };
            for event in events.feed(&piece).map_err(|_| too_large(bounds.bytes_max))? {
                match message::read(&event, &|known| (Some(known) == id).then_some(bounds.bytes_max)) {
                    Incoming::Request { id, method } => {
                        self.tell("response", Bytes::from(message::reply(&id, &method))).await;
                    }
                    Incoming::Notification { method } if method == "notifications/tools/list_changed" => {
                        self.changed.store(true, Ordering::Release);
                    }
                    answer => {
                        if let Some(outcome) = answer_of(answer, event.len(), id) {
                            return Ok(Some(outcome));
                        }
                    }
                }
            }
        }
        Err(ended())
    }

    async fn drain(&self, response: Response<Body>, sender: Sender, bytes_max: usize) {
        if collect(response, bytes_max).await.is_ok() {
            self.keep(sender);
        }
    }

    fn keep(&self, sender: Sender) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX && !sender.is_closed() {
            kept.push(sender);
        }
    }
}

fn ended() -> ToolError {
    ToolError::new(ToolErrorCode::ServerEnded, "the server ended the stream before the answer")
        .after_sending()
}

async fn collect(response: Response<Body>, bytes_max: usize) -> Result<Vec<u8>, ToolError> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| ended())?.into_data() else { continue };
        if bytes.len() + piece.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// The outcome of a request, if this message is its answer.
fn answer_of(message: Incoming, bytes: usize, wanted: Option<u64>) -> Option<Result<Answer, ToolError>> {
    match message {
        Incoming::Refused { id, error } if Some(id) == wanted => Some(Err(error)),
        Incoming::Response { id, outcome } if Some(id) == wanted => Some(match outcome {
            Ok(result) => Ok(Answer { result, bytes }),
            Err(error) => Err(error.told()),
        }),
        _ => None,
    }
}
