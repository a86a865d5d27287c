//! Names in addresses: percent-encoding (RFC 3986), strict in what it reads.

use std::fmt::Write as _;

/// Everything but the unreserved characters and the slash is encoded.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string does not fail.
            _ => write!(encoded, "%{byte:02X}").unwrap_or_default(),
        }
    }
    encoded
}

/// Nothing for a broken escape, an encoded slash or NUL, bytes that are not UTF-8, and characters that cannot
/// stand in a path.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                let value = high << 4 | low;
                if value == b'/' || value == 0 {
                    return None;
                }
                decoded.push(value);
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' => decoded.push(byte),
            _ if b"-._~!$&'()*+,;=:@".contains(&byte) => decoded.push(byte),
            _ => return None,
        }
    }
    String::from_utf8(decoded).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_leads_back_to_itself() {
        for text in ["a/b.txt", "ä b%c?d#e", "\u{1f600}\n\"", ""] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn sloppy_escapes_are_refused() {
        for bad in
            ["%", "%4", "%zz", "%2f", "a%2Fb", "%00", "%ff", "a b", "a?b", "a#b", "ä", "a\"b", "%+1", "%C3"]
        {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode("a+b%20c%2e").as_deref(), Some("a+b c."));
    }
}
