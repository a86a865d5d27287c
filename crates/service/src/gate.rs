//! The checks of every request before a route: Host and Origin, then the caller's identity.
//!
//! A malicious page can make a browser send requests to a server on the same machine. The gate refuses
//! unknown host names (DNS rebinding) and unknown origins (cross-site requests, especially WebSockets) before
//! anything is read. A known page gets the headers without which a browser does not let it read an answer
//! ([`super::cors`]). The credential is taken out of the request here and goes to [`Callers`]; later code sees
//! only the caller and the end of its credential, with which its answer ends.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, SEC_WEBSOCKET_PROTOCOL, WWW_AUTHENTICATE,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mcp::SessionEnd;
use serde_json::{Value, json};

use super::callers::{Callers, Identified, Unidentified, bounded};
use super::connections;
use super::control::FromOwner;
use super::cors;
use super::listen::Address;
use super::metrics::{Counters, Refusal};
use crate::{admin, file_urls, oauth, websocket};

const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const SCHEME: &str = "Bearer ";
/// When a credential that cannot be checked now may be shown again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("30");
/// Prefix of the WebSocket subprotocol that carries the token of a page, which cannot set a header there.
const PROTOCOL_PREFIX: &str = "bearer.";
/// Paths for monitoring, which has no token and uses any address of this server.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Decides which requests are accepted.
pub(crate) struct Gate {
    /// Host names of this server; lower case, without a port.
    hosts: BTreeSet<String>,
    /// Origins that may use this server: scheme, host and port as a browser writes them.
    origins: BTreeSet<String>,
    callers: Arc<Callers>,
    counters: Arc<Counters>,
}

impl Gate {
    /// A gate for these addresses, and for the host names and origins that the operator added.
    pub(crate) fn new(
        addresses: &[Address],
        hosts: &[String],
        origins: &[String],
        callers: Arc<Callers>,
        counters: Arc<Counters>,
    ) -> Self {
        let mut gate = Self { hosts: BTreeSet::new(), origins: BTreeSet::new(), callers, counters };
        gate.hosts.extend(LOOPBACK_NAMES.map(str::to_owned));
        gate.hosts.extend(hosts.iter().map(|host| plain_host(host)));
        gate.origins.extend(origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()));
        for address in addresses {
            let Address::Tcp(address) = address else { continue };
            if !address.ip().is_unspecified() {
                gate.hosts.insert(address.ip().to_string());
            }
            for host in gate.hosts.clone() {
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                gate.origins
                    .extend(["http", "https"].map(|scheme| own_origin(scheme, &host, address.port())));
            }
        }
        gate
    }

    fn knows_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut named = headers.get_all(HOST).iter();
        let (first, second) = (named.next(), named.next());
        let authority = match (uri.authority(), first) {
            (Some(authority), _) => Some(authority.clone()),
            (None, Some(value)) => value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()),
            (None, None) => None,
        };
        second.is_none() && authority.is_some_and(|found| self.hosts.contains(&plain_host(found.host())))
    }

    /// A request without an origin does not come from a page.
    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let is_known = |value: &HeaderValue| {
            value.to_str().is_ok_and(|text| self.origins.contains(&text.trim().to_ascii_lowercase()))
        };
        headers.get_all(ORIGIN).iter().all(is_known)
    }

    /// The origin of the page that sent the request, if that page may use this server.
    fn page(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        headers.get(ORIGIN).filter(|_| self.knows_origin(headers)).cloned()
    }

    /// Who sends a request. `protocol_token` is the token of a WebSocket's subprotocol.
    async fn identify(
        &self,
        headers: &HeaderMap,
        protocol_token: Option<&str>,
    ) -> Result<Identified, Unidentified> {
        self.callers.identify(self.bearer(headers, protocol_token)?).await
    }

    /// The bearer that a request shows. A request that shows two has none that counts. Another scheme is a mistake,
    /// unless nothing is asked for: then it may be meant for a proxy in front.
    fn bearer<'r>(
        &self,
        headers: &'r HeaderMap,
        protocol_token: Option<&'r str>,
    ) -> Result<Option<&'r [u8]>, Unidentified> {
        let bearer = |value: &'r HeaderValue| {
            let (scheme, shown) = value.as_bytes().split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME.as_bytes()).then(|| shown.trim_ascii())
        };
        let mut given = Vec::new();
        for value in headers.get_all(AUTHORIZATION) {
            match bearer(value) {
                Some(shown) => given.push(shown),
                None if self.callers.asks() => {
                    return Err(Unidentified::wrong(
                        "a bearer token is needed: send `Authorization: Bearer TOKEN`",
                    ));
                }
                None => {}
            }
        }
        given.extend(protocol_token.map(str::as_bytes));
        match given.as_slice() {
            [] => Ok(None),
            [shown] => Ok(Some(shown)),
            _ => Err(Unidentified::wrong("the request shows two bearer tokens: send one")),
        }
    }
}

/// A refusal of the gate, as an extension of the response: the admin API words it in its own form.
#[derive(Clone)]
struct Refused {
    code: &'static str,
    reason: Cow<'static, str>,
}

/// The middleware.
pub(crate) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let page = gate.page(request.headers());
    let is_admin = admin::is_path(request.uri().path());
    let mut response = match cors::is_preflight(&request) {
        true => gate.preflight(&request),
        false => gate.admit(request, next).await,
    };
    if let Some(Refused { code, reason }) = response.extensions_mut().remove().filter(|_| is_admin) {
        response = admin::in_own_form(response, code, &reason);
    }
    cors::allow(response.headers_mut(), page);
    response
}

/// Takes the token out of the subprotocols that a WebSocket offers. The server answers with one of the others.
fn take_protocol_token(headers: &mut HeaderMap) -> Option<String> {
    let mut token = None;
    let mut others = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for protocol in value.to_str().ok()?.split(',').map(str::trim) {
            match protocol.strip_prefix(PROTOCOL_PREFIX) {
                // Two tokens are no token.
                Some(shown) => token = Some(if token.is_none() { shown.to_owned() } else { String::new() }),
                None => others.push(protocol),
            }
        }
    }
    let others = others.join(", ");
    token.as_ref()?;
    match HeaderValue::from_str(&others) {
        Ok(others) if !others.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, others),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
    token
}

impl Gate {
    fn preflight(&self, request: &Request) -> Response {
        if !self.knows_host(request.uri(), request.headers()) {
            return self.turn_away(StatusCode::FORBIDDEN, Refusal::Host);
        }
        match self.page(request.headers()) {
            Some(_) => cors::preflight(request.headers()),
            None => self.turn_away(StatusCode::FORBIDDEN, Refusal::Origin),
        }
    }

    async fn admit(&self, mut request: Request, next: Next) -> Response {
        let protocol_token = match request.uri().path() == websocket::PATH {
            true => take_protocol_token(request.headers_mut()),
            false => None,
        };
        let path = request.uri().path();
        let is_open = OPEN_PATHS.contains(&path);
        // A signed URL is its own proof and names its principal.
        let is_linked = path.starts_with(file_urls::ROUTE_PREFIX);
        // A client without a token reads there how to get one.
        let is_public = self.callers.oauth().is_some() && oauth::is_metadata(path);
        let is_from_owner = request.extensions().get::<FromOwner>().is_some();
        let is_admin = admin::is_path(path);
        if !is_open && !self.knows_host(request.uri(), request.headers()) {
            return self.turn_away(StatusCode::FORBIDDEN, Refusal::Host);
        }
        if !is_open && !self.knows_origin(request.headers()) {
            return self.turn_away(StatusCode::FORBIDDEN, Refusal::Origin);
        }
        let identified = match (is_linked || is_public, is_from_owner) {
            (true, _) => None,
            (false, true) => Some(self.callers.owner()),
            (false, false) => match self.identify(request.headers(), protocol_token.as_deref()).await {
                Ok(identified) => Some(identified),
                Err(_) if is_open => None,
                Err(why) => return self.unidentified(&why),
            },
        };
        request.headers_mut().remove(AUTHORIZATION);
        let Some(Identified { caller, credential }) = identified else { return next.run(request).await };
        if is_admin && !is_from_owner && admin::is_nobody(&caller) {
            let missing = Unidentified { reason: admin::NO_CREDENTIAL.into(), ..Unidentified::missing() };
            return self.unidentified(&missing);
        }
        // On a server without a token, a request for a monitoring path does not make its connection proven.
        if (self.callers.asks() || !is_open) && connections::prove(request.extensions()).is_err() {
            return self.turn_away(StatusCode::SERVICE_UNAVAILABLE, Refusal::Connection);
        }
        let extensions = request.extensions_mut();
        if let Some(challenge) = self.callers.scope_challenge(&caller) {
            extensions.insert(challenge);
        }
        extensions.insert(caller);
        extensions.insert(credential.clone());
        if let Some(signal) = credential.signal() {
            extensions.insert(SessionEnd::from(signal));
        }
        tokio::select! {
            biased;
            () = credential.ended() => self.unidentified(&Unidentified::ended()),
            response = next.run(request) => bounded(response, credential),
        }
    }

    /// The refusal of a request without a caller.
    fn unidentified(&self, why: &Unidentified) -> Response {
        self.counters.refused(Refusal::Token);
        let mut response = refusal_of(why.status, &why.reason);
        match why.status {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(WWW_AUTHENTICATE, self.callers.challenge(why))
            }
            _ => response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S),
        };
        let code = why.error.unwrap_or(match why.status {
            StatusCode::UNAUTHORIZED => "no_credential",
            _ => "unavailable",
        });
        response.extensions_mut().insert(Refused { code, reason: why.reason.clone() });
        response
    }

    fn turn_away(&self, status: StatusCode, refusal: Refusal) -> Response {
        self.counters.refused(refusal);
        let reason = match refusal {
            Refusal::Host => "the Host header names no host of this server (serve.hosts)",
            Refusal::Connection => connections::ALL_BUSY,
            _ => "pages of this origin may not use this server (serve.origins)",
        };
        let mut response = refusal_of(status, reason);
        let code = match refusal {
            Refusal::Host => "unknown_host",
            Refusal::Connection => "unavailable",
            _ => "unknown_origin",
        };
        response.extensions_mut().insert(Refused { code, reason: reason.into() });
        response
    }
}

/// The refusal is a JSON-RPC error, because clients show the reason only from such a body. Codes in the
/// protocol's own range have defined meanings, so the code is the HTTP status.
pub(crate) fn refusal_of(status: StatusCode, reason: &str) -> Response {
    json(
        status,
        &json!({"jsonrpc": "2.0", "id": null, "error": {"code": status.as_u16(), "message": reason}}),
    )
}

/// A response with this JSON-RPC message.
pub(crate) fn json(status: StatusCode, message: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], message.to_string()).into_response()
}

fn plain_host(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

/// The origin as a browser writes it: the default port is omitted.
fn own_origin(scheme: &str, host: &str, port: u16) -> String {
    match (scheme, port) {
        ("http", 80) | ("https", 443) => format!("{scheme}://{host}"),
        _ => format!("{scheme}://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(addresses: &[&str], hosts: &[&str], origins: &[&str]) -> Gate {
        let addresses: Vec<Address> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let callers = Callers::new("/nonexistent".as_ref(), None, false, None, Box::new(|_, _, _| {}));
        Gate::new(&addresses, &own(hosts), &own(origins), callers, Arc::default())
    }

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn foreign_names_are_not_ours() {
        let gate = gate(&["127.0.0.1:8808"], &["tools.example.com"], &[]);
        let knows = |host: &str| gate.knows_host(&Uri::from_static("/mcp"), &headers(&[("host", host)]));
        for own in [
            "localhost",
            "LocalHost:8808",
            "127.0.0.1:8808",
            "[::1]:9",
            "tools.example.com",
            "tools.example.com.:443",
        ] {
            assert!(knows(own), "{own}");
        }
        for other in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.example:8808", "192.0.2.1", ""]
        {
            assert!(!knows(other), "{other}");
        }
        assert!(!gate.knows_host(&Uri::from_static("/mcp"), &HeaderMap::new()));
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(!gate.knows_host(&Uri::from_static("/mcp"), &two));
    }

    #[test]
    fn only_own_pages_and_named_ones_may_use_it() {
        let gate = gate(&["127.0.0.1:8808"], &[], &["https://app.example.com"]);
        let knows = |origin: &str| gate.knows_origin(&headers(&[("origin", origin)]));
        assert!(
            knows("http://127.0.0.1:8808") && knows("http://localhost:8808") && knows("http://[::1]:8808")
        );
        assert!(knows("https://app.example.com") && gate.knows_origin(&HeaderMap::new()));
        for other in
            ["null", "http://localhost:3000", "http://evil.example:8808", "https://app.example.com.evil", ""]
        {
            assert!(!knows(other), "{other}");
        }
        let two = headers(&[("origin", "http://localhost:8808"), ("origin", "http://evil.example")]);
        assert!(!gate.knows_origin(&two));
    }

    async fn principal(gate: &Gate, headers: &HeaderMap, protocol_token: Option<&str>) -> Option<String> {
        let identified = gate.identify(headers, protocol_token).await.ok()?;
        Some(identified.caller.principal.as_str().to_owned())
    }

    #[tokio::test]
    async fn without_a_token_to_show_everybody_is_the_same() {
        let gate = gate(&["127.0.0.1:8808"], &[], &[]);
        assert_eq!(principal(&gate, &HeaderMap::new(), None).await.as_deref(), Some("anonymous"));
        let for_a_proxy = headers(&[("authorization", "Basic eDp5")]);
        assert_eq!(principal(&gate, &for_a_proxy, None).await.as_deref(), Some("anonymous"));
        assert_eq!(principal(&gate, &headers(&[("authorization", "Bearer x")]), None).await, None);
    }

    #[tokio::test]
    async fn only_the_whole_token_counts() {
        let folder = harness::TestFolder::new();
        let (token, fresh) = super::super::token::obtain(folder.path()).unwrap();
        let text = fresh.unwrap().text;
        let mut gate = gate(&["127.0.0.1:8808"], &[], &[]);
        gate.callers = Callers::new(folder.path(), Some(token), true, None, Box::new(|_, _, _| {}));
        let asks = async |value: &str| principal(&gate, &headers(&[("authorization", value)]), None).await;
        assert_eq!(asks(&format!("Bearer {text}")).await.as_deref(), Some("token"));
        assert_eq!(asks(&format!("bearer {text}")).await.as_deref(), Some("token"));
        for wrong in ["Bearer ", "Bearer", "", &text, &format!("Basic {text}"), &format!("Bearer {text}x")] {
            assert_eq!(asks(wrong).await, None, "{wrong}");
        }
        assert_eq!(principal(&gate, &HeaderMap::new(), None).await, None);
        let right = format!("Bearer {text}");
        let twice = headers(&[("authorization", &right), ("authorization", &right)]);
        assert_eq!(principal(&gate, &twice, None).await, None);
        assert_eq!(principal(&gate, &HeaderMap::new(), Some(&text)).await.as_deref(), Some("token"));
        assert_eq!(principal(&gate, &HeaderMap::new(), Some("wrong")).await, None);
        let both = headers(&[("authorization", &right)]);
        assert_eq!(principal(&gate, &both, Some(&text)).await, None, "two tokens");
    }

    #[test]
    fn a_websockets_token_is_taken_out_of_its_protocols() {
        let taken = |values: &[&str]| {
            let list: Vec<_> = values.iter().map(|value| ("sec-websocket-protocol", *value)).collect();
            let mut headers = headers(&list);
            let token = take_protocol_token(&mut headers);
            let left = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
            (token, left.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>().join("; "))
        };
        let token = || Some("plsd_x".to_owned());
        assert_eq!(taken(&["mcp, bearer.plsd_x"]), (token(), "mcp".to_owned()));
        assert_eq!(taken(&["bearer.plsd_x", "mcp,other"]), (token(), "mcp, other".to_owned()));
        assert_eq!(taken(&["bearer.plsd_x"]), (token(), String::new()));
        assert_eq!(taken(&["mcp, bearer.a, bearer.b"]), (Some(String::new()), "mcp".to_owned()));
        assert_eq!(taken(&["mcp"]), (None, "mcp".to_owned()));
        assert_eq!(taken(&[]), (None, String::new()));
    }

    #[tokio::test]
    async fn a_link_needs_no_token_but_a_name_of_ours() {
        use tower::ServiceExt;
        let folder = harness::TestFolder::new();
        let mut gate = gate(&["127.0.0.1:8808"], &[], &[]);
        let token = super::super::token::obtain(folder.path()).unwrap().0;
        gate.callers = Callers::new(folder.path(), Some(token), true, None, Box::new(|_, _, _| {}));
        let inside = |caller: Option<axum::Extension<engine::Caller>>| async move {
            if caller.is_some() { "somebody" } else { "nobody" }
        };
        let router = axum::Router::new()
            .fallback(inside)
            .layer(axum::middleware::from_fn_with_state(Arc::new(gate), pass));
        let ask = async |path: &str, given: &[(&str, &str)]| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            *request.headers_mut() = headers(given);
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let own = ("host", "127.0.0.1:8808");
        assert_eq!(ask("/files/token/name", &[own]).await, (200, "nobody".to_owned()));
        for (path, given, status) in [
            ("/files/token/name", vec![("host", "evil.example")], 403),
            ("/files/token/name", vec![own, ("origin", "https://evil.example")], 403),
            ("/files", vec![own], 401),
            ("/mcp", vec![own], 401),
            ("/filesystem/x", vec![own], 401),
        ] {
            assert_eq!(ask(path, &given).await.0, status, "{path} {given:?}");
        }
    }
}
