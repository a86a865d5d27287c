//! Answers of the admin API: JSON that is never cached, and errors of one form.
//!
//! `{"error": {"code", "message", "remedy"}}`: the code is stable, the message is for people, and the remedy says what to
//! do next.

use std::pin::Pin;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::admin::{NotCreated, Page};
use engine::{ApprovalError, KeyError, RunError, StoreError};
use policy::Scope;
use serde::Serialize;
use serde_json::{Value, json};

use super::ask::cursor_text;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// The work of a handler.
pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;

/// A good answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// A value.
    Json(StatusCode, Value),
    /// Lines of JSON that come one after the other.
    Lines(Body),
}

impl Answer {
    /// 200 with a value.
    pub(super) fn ok(value: &impl Serialize) -> Result<Self, Refusal> {
        Self::of(StatusCode::OK, value)
    }

    /// 201 with a value.
    pub(super) fn created(value: &impl Serialize) -> Result<Self, Refusal> {
        Self::of(StatusCode::CREATED, value)
    }

    fn of(status: StatusCode, value: &impl Serialize) -> Result<Self, Refusal> {
        let body = serde_json::to_value(value).map_err(|_| Refusal::own("the answer cannot be written"))?;
        Ok(Self::Json(status, body))
    }

    /// A part of a list.
    pub(super) fn page<T: Serialize>(page: &Page<T>) -> Result<Self, Refusal> {
        let next = page.next.as_deref().map(cursor_text);
        Self::ok(&json!({ "items": page.items, "next_cursor": next }))
    }

    pub(super) fn into_response(self) -> Response {
        match self {
            Self::Json(status, body) => respond(status, &body),
            Self::Lines(body) => {
                let headers =
                    [(CONTENT_TYPE, LINES), (CACHE_CONTROL, NO_STORE), (X_CONTENT_TYPE_OPTIONS, NO_SNIFF)];
                (StatusCode::OK, headers, body).into_response()
            }
        }
    }
}

/// A request that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: String,
    message: String,
    remedy: String,
    /// The scopes of which one is needed.
    scopes: &'static [Scope],
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        code: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), remedy: remedy.into(), scopes: &[] }
    }

    pub(super) fn bad(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, remedy)
    }

    pub(super) fn not_found(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message, remedy)
    }

    pub(super) fn own(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, "look at the log of the server")
    }

    /// The caller has none of these scopes.
    pub(super) fn scope(scopes: &'static [Scope]) -> Self {
        let names: Vec<_> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
        let message = format!("this needs the scope {}", names.join(" or "));
        let remedy = "use a key with that scope (`palisade keys create NAME --scope SCOPE`), or the server's own token";
        Self { scopes, ..Self::new(StatusCode::FORBIDDEN, "insufficient_scope", message, remedy) }
    }

    pub(super) fn no_such_path() -> Self {
        Self::not_found("no_such_path", "the admin API has no such path", "see /admin/v1/openapi.json")
    }

    pub(super) fn method() -> Self {
        let (message, remedy) = ("the path has no such method", "see /admin/v1/openapi.json");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, remedy)
    }

    pub(super) fn into_response(self) -> Response {
        let body = body_of(&self.code, &self.message, &self.remedy);
        let mut response = respond(self.status, &body);
        let headers = response.headers_mut();
        if self.status == StatusCode::PAYLOAD_TOO_LARGE || self.status == StatusCode::REQUEST_TIMEOUT {
            // The rest of the body stays unread, so the connection cannot be reused.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if !self.scopes.is_empty() {
            let names: Vec<_> = self.scopes.iter().map(|scope| scope.oauth_name()).collect();
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", names.join(" "));
            // Names of scopes are ASCII.
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
        }
        response
    }
}

/// A refusal of the gate in the form of this API. Status and other headers stay.
pub(crate) fn in_own_form(refused: Response, code: &str, reason: &str) -> Response {
    let (mut parts, _) = refused.into_parts();
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, JSON);
    parts.headers.insert(CACHE_CONTROL, NO_STORE);
    let remedy = match parts.status {
        StatusCode::UNAUTHORIZED => "send `Authorization: Bearer KEY` with a key that is in force",
        StatusCode::SERVICE_UNAVAILABLE => "try again later",
        _ => "see the settings serve.hosts and serve.origins",
    };
    Response::from_parts(parts, axum::body::Body::from(body_of(code, reason, remedy).to_string()))
}

fn body_of(code: &str, message: &str, remedy: &str) -> Value {
    json!({ "error": { "code": code, "message": message, "remedy": remedy } })
}

fn respond(status: StatusCode, body: &Value) -> Response {
    let headers = [(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE), (X_CONTENT_TYPE_OPTIONS, NO_SNIFF)];
    (status, headers, format!("{body}\n")).into_response()
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        let (status, code, remedy) = match &error {
            KeyError::BadName(_) => (StatusCode::BAD_REQUEST, "bad_name", "choose another name"),
            KeyError::PastExpiry => (StatusCode::BAD_REQUEST, "past_expiry", "choose a later time"),
            KeyError::NameTaken(_) => {
                (StatusCode::CONFLICT, "name_taken", "choose another name, or revoke that key first")
            }
            KeyError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_key", "see GET /admin/v1/keys"),
            KeyError::Over { .. } => (StatusCode::CONFLICT, "key_over", "make a new key"),
            KeyError::TooMany => (StatusCode::CONFLICT, "too_many_keys", "revoke keys that are not needed"),
            KeyError::Exposed(_) => {
                // The reason names paths of the server.
                tracing::error!(reason = %error, "keys_exposed");
                let message = "others can change the files of the keys, so no key is read or written";
                let remedy = "see the log of the server, or `palisade keys list` on its machine";
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, "keys_exposed", message, remedy);
            }
            KeyError::Store(error) => return error.into(),
        };
        Self::new(status, code, error.to_string(), remedy)
    }
}

impl From<NotCreated> for Refusal {
    fn from(error: NotCreated) -> Self {
        match error {
            NotCreated::Key(error) => error.into(),
            NotCreated::UnknownPolicy { .. } => {
                Self::bad("unknown_policy", error.to_string(), "see GET /admin/v1/policies")
            }
        }
    }
}

impl From<ApprovalError> for Refusal {
    fn from(error: ApprovalError) -> Self {
        let status = match &error {
            ApprovalError::Unknown(_) => StatusCode::NOT_FOUND,
            ApprovalError::Decided { .. } => StatusCode::CONFLICT,
            ApprovalError::OwnCall(_) | ApprovalError::MissingScope | ApprovalError::OperatorOnly(_) => {
                StatusCode::FORBIDDEN
            }
            ApprovalError::LongReason => StatusCode::BAD_REQUEST,
            ApprovalError::Exposed(_) => {
                // The reason names paths of the server.
                tracing::error!(reason = %error, "approvals_exposed");
                let message = "others can change the files of the approvals, so no approval counts";
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), message, error.remedy());
            }
            ApprovalError::TooMany { .. } | ApprovalError::TooLarge { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ApprovalError::Store(error) => return error.into(),
        };
        Self::new(status, error.code(), error.to_string(), error.remedy())
    }
}

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Self {
        error.to_run_error().into()
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        let status = match error.code.as_str() {
            "run_elsewhere" | "sandbox_busy" | "sandbox_elsewhere" => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(
            status,
            &error.code,
            error.message,
            error.remedy.unwrap_or_else(|| "try again later".to_owned()),
        )
    }
}
