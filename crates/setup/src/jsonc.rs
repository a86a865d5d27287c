//! JSON with comments, read without losing a byte: comments become blanks of the same length, so that every
//! offset in what a strict parser sees is an offset in the original.

use std::ops::Range;

use serde_json::Value;

/// A text with everything blanked that is not JSON.
pub(crate) struct Blanked {
    pub(crate) text: String,
    pub(crate) has_comments: bool,
    /// Where commas before a closing bracket were.
    pub(crate) trailing_commas: Vec<usize>,
}

/// Blanks comments, trailing commas and a byte order mark.
pub(crate) fn blank(text: &str) -> Blanked {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    let mut bytes = text.as_bytes().to_vec();
    let (mut has_comments, mut trailing_commas) = (false, Vec::new());
    let mut at = 0;
    if bytes.starts_with(MARK) {
        at = MARK.len();
        bytes[..at].fill(b' ');
    }
    // The last comma, while nothing but blanks followed it; and the last sign of any meaning.
    let (mut comma, mut before) = (None, b'{');
    while at < bytes.len() {
        let end = match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => string_end(&bytes, at),
            (b'/', Some(b'/')) => comment(&mut bytes, at, line_end),
            (b'/', Some(b'*')) => comment(&mut bytes, at, block_end),
            _ => at + 1,
        };
        let is_comment = bytes[at] == b' ' && end > at + 1;
        has_comments |= is_comment;
        match bytes[at] {
            byte if is_comment || byte.is_ascii_whitespace() => {}
            b',' if !matches!(before, b'{' | b'[' | b',') => (comma, before) = (Some(at), b','),
            byte => {
                if let (b'}' | b']', Some(comma)) = (byte, comma) {
                    bytes[comma] = b' ';
                    trailing_commas.push(comma);
                }
                (comma, before) = (None, byte);
            }
        }
        at = end;
    }
    // Only whole characters were replaced, so this is UTF-8 still.
    Blanked { text: String::from_utf8(bytes).unwrap_or_default(), has_comments, trailing_commas }
}

/// Blanks a comment but for its line ends; one without an end is left for the parser to complain about.
fn comment(bytes: &mut [u8], at: usize, end: fn(&[u8], usize) -> Option<usize>) -> usize {
    let Some(end) = end(bytes, at) else { return at + 1 };
    bytes[at..end].iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    end
}

fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    Some(at + rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len()))
}

fn block_end(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at + 2..].windows(2).position(|pair| pair == b"*/").map(|found| at + 2 + found + 2)
}

/// The offset after the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while let Some(byte) = bytes.get(end) {
        match byte {
            b'"' => return end + 1,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// One member of an object.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) key_start: usize,
    pub(crate) value: Range<usize>,
}

/// An object and where it is.
#[derive(Debug)]
pub(crate) struct Object {
    /// Of its braces.
    pub(crate) open: usize,
    pub(crate) close: usize,
    pub(crate) members: Vec<Member>,
}

impl Object {
    /// The object that begins at or after `start` in a text that is known to be JSON; nothing if something
    /// else is there.
    pub(crate) fn at(text: &str, start: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let open = skip_blanks(bytes, start);
        if *bytes.get(open)? != b'{' {
            return None;
        }
        let mut members = Vec::new();
        let mut at = skip_blanks(bytes, open + 1);
        while *bytes.get(at)? != b'}' {
            let (key_start, key_end) = (at, string_end(bytes, at));
            let key = serde_json::from_str(text.get(key_start..key_end)?).ok()?;
            let colon = skip_blanks(bytes, key_end);
            let value_start = skip_blanks(bytes, colon + 1);
            let value = value_start..value_end(bytes, value_start);
            at = skip_blanks(bytes, value.end);
            members.push(Member { key, key_start, value });
            if *bytes.get(at)? == b',' {
                at = skip_blanks(bytes, at + 1);
            }
        }
        Some(Self { open, close: at, members })
    }

    /// The only member of that name.
    pub(crate) fn member(&self, key: &str) -> Result<Option<&Member>, Twice> {
        let mut found = self.members.iter().filter(|member| member.key == key);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Twice),
            (one, None) => Ok(one),
        }
    }
}

/// A name occurs twice, so nobody knows which one counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Twice;

fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => depth -= 1,
            b',' | b'}' | b']' if depth == 0 => return at,
            byte if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at;
        }
    }
    bytes.len()
}

/// The whole text as a value.
pub(crate) fn parse(blanked: &Blanked) -> Result<Value, serde_json::Error> {
    if blanked.text.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_str(&blanked.text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        parse(&blank(text)).unwrap()
    }

    #[test]
    fn comments_and_trailing_commas_are_blanks_of_the_same_length() {
        let text =
            "\u{feff}{ // größe\r\n \"a\": [1, 2, /* , */ ], /* ☃\n */ \"b\": \"// no /* comment */\",\n}";
        let blanked = blank(text);
        assert_eq!(blanked.text.len(), text.len());
        assert!(blanked.has_comments);
        assert_eq!(blanked.trailing_commas.len(), 2);
        assert_eq!(value(text), json!({ "a": [1, 2], "b": "// no /* comment */" }));
    }

    #[test]
    fn what_is_not_json_stays_an_error() {
        for bad in
            ["{,}", "[,]", "{\"a\":1,,}", "{ /* open", "{\"a\" 1}", "{\"a\":1} x", "'a'", "{\"a\": \"open}"]
        {
            assert!(parse(&blank(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn members_are_found_where_they_are() {
        let text = r#" { "a": {"x": [1, "}"]}, "q\u0022\\": "v\"" , "n":-1.5e3,"t":true }"#;
        let object = Object::at(text, 0).unwrap();
        let found: Vec<(&str, &str)> =
            object.members.iter().map(|member| (member.key.as_str(), &text[member.value.clone()])).collect();
        let expected = [("a", r#"{"x": [1, "}"]}"#), ("q\"\\", r#""v\"""#), ("n", "-1.5e3"), ("t", "true")];
        assert_eq!(found, expected);
        assert_eq!(&text[object.close..], "}");
        assert!(object.members.iter().all(|member| text[member.key_start..].starts_with('"')));
        assert!(Object::at("[1]", 0).is_none());
        assert_eq!(Object::at(r#"{"a":1,"a":2}"#, 0).unwrap().member("a").unwrap_err(), Twice);
    }
}
