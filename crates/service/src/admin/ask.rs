//! A request of the admin API, with everything about it checked that does not depend on the route.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Caller;
use engine::admin::{Operator, PageAsk};
use policy::Principal;
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use super::table::{Route, Verb};
use crate::control::FromOwner;

/// The longest body.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a body may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(20);
/// The longest query.
const QUERY_BYTES_MAX: usize = 2048;
/// The longest id in a path.
const ID_BYTES_MAX: usize = 256;
/// Items of a page, if none is asked for; the next constant is the most.
pub(super) const PAGE_DEFAULT: usize = 50;
pub(super) const PAGE_MAX: usize = 200;
pub(super) const CURSOR_BYTES_MAX: usize = 512;

/// A request.
pub(super) struct Ask {
    /// Who asks.
    pub(super) caller: Caller,
    /// Whether it is the user of the server, on the control socket.
    pub(super) is_from_owner: bool,
    id: Option<String>,
    query: BTreeMap<String, String>,
    body: Bytes,
}

impl Ask {
    /// Reads a request of that route.
    pub(super) async fn read(
        route: &Route,
        caller: Caller,
        id: Option<String>,
        request: Request,
    ) -> Result<Self, Refusal> {
        if id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err(Refusal::bad("bad_id", "the id in the path is too long", "give an id of a list"));
        }
        let is_from_owner = request.extensions().get::<FromOwner>().is_some();
        let query = parse_query(route, request.uri().query().unwrap_or_default())?;
        let body = match route.verb {
            Verb::Get => Bytes::new(),
            Verb::Post => {
                check_media_type(request.headers())?;
                read_body(request).await?
            }
        };
        Ok(Self { caller, is_from_owner, id, query, body })
    }

    /// The id in the path.
    pub(super) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// The caller as an operator. The route's scope was checked, so this refuses nobody but by a mistake in the table.
    pub(super) fn operator(&self) -> Result<Operator, Refusal> {
        Operator::of(&self.caller).ok_or_else(|| Refusal::scope(&[policy::Scope::Admin]))
    }

    /// The body as a value of that form, which is an object.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        parse_object(&self.body).map_err(|reason| {
            let message = format!("the body is not what this path takes: {reason}");
            Refusal::bad("bad_body", message, "see /admin/v1/openapi.json")
        })
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// The part of a list that is wanted.
    pub(super) fn page(&self) -> Result<PageAsk, Refusal> {
        let bad = |name: &str, remedy: &str| {
            Refusal::bad("bad_query", format!("the parameter `{name}` has no such value"), remedy)
        };
        let limit = match self.parameter("limit") {
            None => PAGE_DEFAULT,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit) && text.len() < 5)
                .ok_or_else(|| bad("limit", &format!("give a number from 1 to {PAGE_MAX}")))?,
        };
        let after = match self.parameter("cursor") {
            None => None,
            Some(text) => Some(
                read_cursor(text)
                    .ok_or_else(|| bad("cursor", "give the next_cursor of an earlier answer, or none"))?,
            ),
        };
        let principal = match self.parameter("principal") {
            None => None,
            Some(text) => Some(
                Principal::new(text).ok_or_else(|| bad("principal", "give a principal as lists show it"))?,
            ),
        };
        Ok(PageAsk { principal, after, limit })
    }
}

/// The text of a cursor. It is opaque to clients.
pub(super) fn cursor_text(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn read_cursor(text: &str) -> Option<String> {
    let bytes = (text.len() <= CURSOR_BYTES_MAX).then(|| URL_SAFE_NO_PAD.decode(text).ok())??;
    String::from_utf8(bytes).ok().filter(|key| !key.is_empty())
}

/// Takes exactly the parameters of the route, each once.
fn parse_query(route: &Route, text: &str) -> Result<BTreeMap<String, String>, Refusal> {
    let remedy = "see /admin/v1/openapi.json for the parameters of this path";
    if text.len() > QUERY_BYTES_MAX {
        return Err(Refusal::bad("bad_query", "the query is too long", remedy));
    }
    let mut query = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            return Err(Refusal::bad("bad_query", "the query is not UTF-8", remedy));
        };
        let is_known = route.query.iter().any(|known| known.name == name);
        if !is_known || query.insert(name, value).is_some() {
            let message = "the query has a parameter that this path does not have, or has one twice";
            return Err(Refusal::bad("bad_query", message, remedy));
        }
    }
    Ok(query)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A form of a web page can send three media types without being asked; JSON is none of them.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (given.next().and_then(|value| value.to_str().ok()), given.next());
    let essence = first.map(|text| text.split(';').next().unwrap_or_default().trim());
    match essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) && second.is_none()
    {
        true => Ok(()),
        false => {
            let message = "a request that changes something has the media type application/json";
            let remedy = "send `Content-Type: application/json` and a JSON object, which may be empty";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message, remedy))
        }
    }
}

async fn read_body(request: Request) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body is longer than {BODY_BYTES_MAX} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message, "send a shorter one")
    };
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let body: Body = request.into_body();
    match tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let message = "the body did not come in time";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message, "try again"))
        }
    }
}

/// Reads an object. Serde takes a list for a struct, too.
fn parse_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is not an object".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_object_and_no_list() {
        #[derive(Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        struct Body {
            name: Option<String>,
        }
        assert_eq!(parse_object(b" {}"), Ok(Body::default()));
        assert_eq!(parse_object(b"{\"name\": \"x\"}"), Ok(Body { name: Some("x".to_owned()) }));
        for wrong in ["[]", "[\"x\"]", "null", "", "3", "{", "{}{}", "{\"name\": \"x\", \"name\": \"y\"}"] {
            assert!(parse_object::<Body>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
