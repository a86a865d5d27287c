//! What must hold for the parts of an HTTP request that this crate reads itself.
//!
//! The seeded test below and the fuzz target (`fuzz/`) call these functions, so both assert the same. The product does
//! not contain them.

use axum::http::header::RANGE;
use axum::http::{HeaderMap, HeaderValue};

use crate::disposition::attachment;
use crate::range::{Ranged, asked};

/// A part of a file lies in the file.
pub fn range(value: &[u8], size: u64) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let headers = HeaderMap::from_iter([(RANGE, value)]);
    if let Ranged::Part { from, length } = asked(&headers, size) {
        assert!(
            length > 0 && from.checked_add(length).is_some_and(|end| end <= size),
            "{from} {length} {size}"
        );
    }
}

/// Any file name gives one header value whose quotes cannot be left.
pub fn file_name(name: &str) {
    let value = attachment(name);
    assert!(value.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{value:?}");
    assert_eq!(value.matches('"').count(), 2, "{value:?}");
    assert!(HeaderValue::from_str(&value).is_ok());
}

#[cfg(test)]
mod tests {
    use harness::Chance;

    use super::*;

    const PIECES: [&str; 12] =
        ["bytes=", "-", "0", "9", "18446744073709551615", ",", " ", "\"", "\r\n", "ä", "/", "\u{1f600}"];

    #[test]
    fn random_heads_do_no_harm() {
        let mut chance = Chance::new(0x7365_7276);
        for _ in 0..20_000 {
            let count = chance.below(8);
            let text: String = (0..count).map(|_| PIECES[chance.below(PIECES.len())]).collect();
            range(text.as_bytes(), chance.below(20) as u64);
            range(format!("bytes={text}").as_bytes(), u64::MAX);
            file_name(&text);
        }
    }
}
