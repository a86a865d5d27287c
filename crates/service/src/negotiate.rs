//! Media types of `/mcp`: which ones a caller accepts, and which one it sends (RFC 9110, sections 8.3 and 12.5.1).
//!
//! The library compares both headers as text, so it refuses wildcards and capital letters. This module decides,
//! and then gives the library the spelling that it expects.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};

const JSON: (&str, &str) = ("application", "json");
const EVENTS: (&str, &str) = ("text", "event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const ONLY_JSON: HeaderValue = HeaderValue::from_static("application/json");
const WILDCARD: &str = "*";

/// The kinds of answers that a caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accepts {
    /// A request without the header accepts everything.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut ranges = Vec::new();
        for value in headers.get_all(ACCEPT) {
            ranges.extend(value.to_str().unwrap_or_default().split(',').filter_map(Range::parse));
        }
        let is_absent = !headers.contains_key(ACCEPT);
        let accepts = |wanted| is_absent || is_accepted(&ranges, wanted);
        Self { json: accepts(JSON), events: accepts(EVENTS) }
    }
}

/// Whether the body is JSON, with any parameters.
pub(crate) fn sends_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (given.next().and_then(|value| value.to_str().ok()), given.next());
    let essence = first.and_then(|text| text.split(';').next()?.trim().split_once('/'));
    second.is_none() && essence.is_some_and(|(kind, subtype)| is_same(kind, subtype, JSON))
}

/// Writes both headers in the way that the library understands.
pub(crate) fn spell_out(headers: &mut HeaderMap) {
    headers.insert(ACCEPT, BOTH);
    if headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, ONLY_JSON);
    }
}

struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    is_wanted: bool,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let weight = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
        });
        // A weight that cannot be read does not take the type away.
        let is_wanted =
            weight.and_then(|weight| weight.parse::<f32>().ok()).is_none_or(|weight| weight > 0.0);
        Some(Self { kind, subtype, is_wanted })
    }

    /// How precisely this range names the type; `None` if it does not.
    fn precision(&self, wanted: (&str, &str)) -> Option<u8> {
        match (self.kind, self.subtype) {
            (WILDCARD, WILDCARD) => Some(0),
            (kind, WILDCARD) if kind.eq_ignore_ascii_case(wanted.0) => Some(1),
            (kind, subtype) => is_same(kind, subtype, wanted).then_some(2),
        }
    }
}

fn is_same(kind: &str, subtype: &str, wanted: (&str, &str)) -> bool {
    kind.eq_ignore_ascii_case(wanted.0) && subtype.eq_ignore_ascii_case(wanted.1)
}

/// The most precise range decides.
fn is_accepted(ranges: &[Range<'_>], wanted: (&str, &str)) -> bool {
    let matching = ranges.iter().filter_map(|range| Some((range.precision(wanted)?, range.is_wanted)));
    matching.max_by_key(|(precision, _)| *precision).is_some_and(|(_, is_wanted)| is_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(values: &[&str]) -> (bool, bool) {
        let header = |value: &&str| (ACCEPT, HeaderValue::from_str(value).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in values.iter().map(header) {
            headers.append(name, value);
        }
        let Accepts { json, events } = Accepts::of(&headers);
        (json, events)
    }

    #[test]
    fn wildcards_weights_and_capitals_are_understood() {
        for (values, expected) in [
            (&[][..], (true, true)),
            (&["*/*"], (true, true)),
            (&["application/*"], (true, false)),
            (&["application/*, text/*;q=0.5"], (true, true)),
            (&["application/json", "text/event-stream"], (true, true)),
            (&["Application/JSON; charset=utf-8, TEXT/Event-Stream"], (true, true)),
            (&["application/json;q=0.9 , text/event-stream ; Q=1.0"], (true, true)),
            (&["application/json, text/event-stream;q=0"], (true, false)),
            (&["*/*;q=0.1, text/event-stream;q=0.0"], (true, false)),
            (&["*/*;q=0, application/json"], (true, false)),
            (&["image/png"], (false, false)),
            (&["application/jsonx, text/plain"], (false, false)),
            (&["", "json"], (false, false)),
        ] {
            assert_eq!(accepts(values), expected, "{values:?}");
        }
    }

    #[test]
    fn only_json_is_json() {
        let sends = |value: &str| {
            sends_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(value).unwrap())]))
        };
        for json in
            ["application/json", "Application/Json", "application/json; charset=UTF-8", "application/json;x"]
        {
            assert!(sends(json), "{json}");
        }
        for other in ["", "text/plain", "application/jsonx", "application/json-rpc", "json", "application/*"]
        {
            assert!(!sends(other), "{other}");
        }
        assert!(!sends_json(&HeaderMap::new()));
    }
}
