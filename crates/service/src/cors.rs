//! Cross-origin requests of web pages (Fetch standard, "CORS protocol").
//!
//! Only pages that the gate knows get these headers. Pages show the token in a header and never by cookies, so
//! no answer allows credentials, and none names a wildcard.

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// Methods of `/mcp` and of file URLs.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE");
/// Headers of the protocol that a page may send only if they are listed.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, Range",
);
/// Headers of answers that a page may read only if they are listed.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Content-Disposition, Content-Range, Mcp-Protocol-Version, Mcp-Session-Id, Retry-After, WWW-Authenticate",
);
/// Seconds for which a browser may remember the answer to a preflight.
const REMEMBERED_S: HeaderValue = HeaderValue::from_static("600");
/// Asked by pages of the internet before they use a server in a private network, or on the same machine.
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Whether a browser asks if a page may send a request. Such a question has no token.
pub(crate) fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to the preflight of a page that may use this server.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED_S);
    if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

/// Lets a page of that origin read the answer. Caches must not give it to pages of another origin.
pub(crate) fn allow(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
}
