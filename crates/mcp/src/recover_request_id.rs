//! Recovers the id of a request whose line cannot be parsed, so that its sender gets an error instead of no
//! answer.
//!
//! The id is used only where it is certain: as the first or the last property of the outermost object.
//! Clients write it there.

use rmcp::model::RequestId;

/// Number of bytes kept from each end of an oversized line.
pub(crate) const END_BYTES: usize = 512;

/// The id, if `head` (the beginning of a line) or `tail` (its end) shows it unambiguously. The end of a line that is
/// whole and does not parse shows nothing: its last brace need not close the outermost object.
pub(crate) fn request_id(head: &[u8], tail: Option<&[u8]>) -> Option<RequestId> {
    let at_end = || tail.and_then(|tail| at_end(&String::from_utf8_lossy(tail)));
    at_beginning(&String::from_utf8_lossy(head)).or_else(at_end)
}

/// Matches `{"jsonrpc":"2.0","id":7,` with the first two properties in any order.
fn at_beginning(head: &str) -> Option<RequestId> {
    let rest = head.trim_start().strip_prefix('{')?;
    let rest = property(rest, "jsonrpc")
        .and_then(|rest| rest.trim_start().strip_prefix("\"2.0\""))
        .map_or(rest, |rest| rest.trim_start().trim_start_matches(','));
    let value = property(rest, "id")?.trim_start();
    let end = value_end(value)?;
    parse(&value[..end])
}

/// Matches `,"id":7}` at the very end, where the last brace closes the outermost object.
fn at_end(tail: &str) -> Option<RequestId> {
    let before = tail.trim_end().strip_suffix('}')?;
    let at = before.rfind("\"id\"")?;
    let is_property = before[..at].trim_end().ends_with([',', '{']);
    parse(property(&before[at..], "id")?.trim()).filter(|_| is_property)
}

fn property<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.trim_start().strip_prefix('"')?.strip_prefix(name)?.strip_prefix('"')?;
    rest.trim_start().strip_prefix(':')
}

fn value_end(value: &str) -> Option<usize> {
    match value.strip_prefix('"') {
        Some(rest) => rest.find('"').map(|end| end + 2),
        None => value.find([',', '}']),
    }
}

/// A number, or a string without escapes.
fn parse(value: &str) -> Option<RequestId> {
    let value = value.trim();
    match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(text) if !text.contains(['"', '\\']) => Some(RequestId::String(text.into())),
        Some(_) => None,
        None => value.parse().ok().map(RequestId::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<RequestId> {
        request_id(line.as_bytes(), Some(line.as_bytes()))
    }

    #[test]
    fn an_id_at_either_end_is_found() {
        assert_eq!(of(r#"{"jsonrpc":"2.0","id":7,"method":"x", [[["#), Some(RequestId::Number(7)));
        assert_eq!(of(r#" { "id" : "a-1" , "jsonrpc":"2.0""#), Some(RequestId::String("a-1".into())));
        assert_eq!(of(r#"{"method":"x","params":{},"jsonrpc":"2.0","id":12}"#), Some(RequestId::Number(12)));
        assert_eq!(of("{\"method\":1,\"id\": \"q\" }\r"), Some(RequestId::String("q".into())));
    }

    #[test]
    fn an_id_elsewhere_is_nobodys() {
        assert_eq!(of(r#"{"method":"x","params":{"id":3}}"#), None);
        assert_eq!(of(r#"{"method":"x","params":{"id":3}, "a": 1}"#), None);
        assert_eq!(of(r#"{"params":"\"id\":3}"#), None);
        assert_eq!(of(r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#), None);
        assert_eq!(of("not json"), None);
    }
}
