//! Percent-encoding of names in URIs (RFC 3986). Decoding is strict.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Every character except the unreserved ones and the slash.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Bytes that stand for themselves in a path, besides letters and digits.
const PLAIN: &[u8] = b"-._~!$&'()*+,;=:@/";

/// Encodes every character except the unreserved ones and the slash.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns `None` for a broken escape, an encoded slash or NUL, invalid UTF-8, and characters that cannot
/// appear in a path.
pub fn decode(text: &str) -> Option<String> {
    let is_known = |byte: u8| byte == b'%' || byte.is_ascii_alphanumeric() || PLAIN.contains(&byte);
    if !text.bytes().all(is_known) {
        return None;
    }
    let count = |bytes: &[u8], wanted: u8| bytes.iter().filter(|byte| **byte == wanted).count();
    let decoded: Vec<u8> = percent_decode_str(text).collect();
    // The library leaves a broken escape in place. The length shows that each escape was decoded, because
    // each saves two bytes.
    let is_whole = decoded.len() + 2 * count(text.as_bytes(), b'%') == text.len();
    let has_new_slash = count(&decoded, b'/') != count(text.as_bytes(), b'/');
    if !is_whole || has_new_slash || decoded.contains(&0) {
        return None;
    }
    String::from_utf8(decoded).ok()
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
