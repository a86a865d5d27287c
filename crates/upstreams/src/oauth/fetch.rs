//! Small documents by HTTP, for logins: bounded, without redirects, by https or on loopback.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value};

use super::failed;
use crate::host::ToolError;
use crate::spec::HttpSpec;
use crate::tls::Dialer;

const DOCUMENT_BYTES_MAX: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
pub(super) struct Document {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Vec<u8>,
}

impl Document {
    /// The body as an object; empty if it is none.
    pub(super) fn object(&self) -> Map<String, Value> {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What is sent.
pub(super) enum Sent<'a> {
    Nothing,
    Json(&'a Value),
    Form(&'a [(&'a str, &'a str)]),
}

/// Checks an address that a server named.
pub(super) fn address(text: &str) -> Result<Uri, ToolError> {
    HttpSpec::parse_url(text)
        .map_err(|reason| failed(format!("the server names an address that cannot be used: {reason}")))
}

/// Asks once. The connection is not kept.
pub(super) async fn ask(dialer: &Dialer, url: &Uri, sent: Sent<'_>) -> Result<Document, ToolError> {
    tokio::time::timeout(PATIENCE, exchange(dialer, url, sent))
        .await
        .unwrap_or_else(|_| Err(failed(format!("no answer within {} s", PATIENCE.as_secs()))))
}

async fn exchange(dialer: &Dialer, url: &Uri, sent: Sent<'_>) -> Result<Document, ToolError> {
    let (method, kind, body) = match sent {
        Sent::Nothing => (Method::GET, None, Vec::new()),
        Sent::Json(value) => (Method::POST, Some("application/json"), value.to_string().into_bytes()),
        Sent::Form(fields) => {
            (Method::POST, Some("application/x-www-form-urlencoded"), form(fields).into_bytes())
        }
    };
    let authority = url.authority().map(|one| one.as_str()).unwrap_or_default();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let unusable = |_| failed("the request cannot be made");
    let mut request = Request::builder().method(method).uri(path).header(HOST, authority);
    request = request.header(USER_AGENT, concat!("palisade/", env!("CARGO_PKG_VERSION")));
    request = request.header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    if let Some(kind) = kind {
        request = request.header(CONTENT_TYPE, kind);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(unusable)?;
    let mut sender = dialer.connect(url).await?;
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| failed(format!("the connection failed: {error}")))?;
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(frame) = stream.frame().await {
        let Ok(piece) = frame.map_err(|_| failed("the answer was cut off"))?.into_data() else { continue };
        if body.len() + piece.len() > DOCUMENT_BYTES_MAX {
            return Err(failed("the answer is too large"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Document { status: head.status, headers: head.headers, body })
}

/// Fields as a form, or as a query.
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The fields of a query. Fields that are not well-formed are left out.
pub(super) fn query(text: &str) -> Vec<(String, String)> {
    let field = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    };
    text.split('&').filter(|pair| !pair.is_empty()).filter_map(field).collect()
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_they_were_written() {
        let fields = [("a b", "c&d=e"), ("é", "+%")];
        let text = form(&fields);
        assert_eq!(text, "a%20b=c%26d%3De&%C3%A9=%2B%25");
        let read = query(&text);
        assert_eq!(read[0], ("a b".to_owned(), "c&d=e".to_owned()));
        assert_eq!(read[1], ("é".to_owned(), "+%".to_owned()));
        assert_eq!(query("x=%2&y=%ZZ&z"), [("z".to_owned(), String::new())]);
    }
}
