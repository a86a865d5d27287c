//! `Range`: one part of a file (RFC 9110, section 14).
//!
//! A request for several parts gets the whole file, which the RFC allows. So does a request with `If-Range`,
//! because the server sends no validators.

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

/// The range that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranged {
    Whole,
    Part { from: u64, length: u64 },
    Unsatisfiable,
}

/// The requested part of a file of that size.
pub(crate) fn asked(headers: &HeaderMap, size: u64) -> Ranged {
    let mut given = headers.get_all(RANGE).iter();
    let (Some(value), None, false) = (given.next(), given.next(), headers.contains_key(IF_RANGE)) else {
        return Ranged::Whole;
    };
    value.to_str().ok().and_then(|text| parse(text, size)).unwrap_or(Ranged::Whole)
}

fn parse(text: &str, size: u64) -> Option<Ranged> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (from, to) = match (first, last) {
        ("", last) => match number(last)? {
            0 => return Some(Ranged::Unsatisfiable),
            count => (size.saturating_sub(count), size),
        },
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (from, last) = (number(first)?, number(last)?);
            if last < from {
                return None;
            }
            (from, last.saturating_add(1).min(size))
        }
    };
    Some(match from < size {
        true => Ranged::Part { from, length: to - from },
        false => Ranged::Unsatisfiable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Ranged {
        let headers = HeaderMap::from_iter([(RANGE, text.parse().unwrap())]);
        asked(&headers, 100)
    }

    #[test]
    fn parts_are_cut_to_the_file() {
        for (text, from, length) in [
            ("bytes=0-9", 0, 10),
            ("bytes=90-", 90, 10),
            ("bytes=-5", 95, 5),
            ("bytes=-500", 0, 100),
            ("bytes=99-18446744073709551615", 99, 1),
        ] {
            assert_eq!(of(text), Ranged::Part { from, length }, "{text}");
        }
        for text in ["bytes=100-", "bytes=-0", "bytes=200-300"] {
            assert_eq!(of(text), Ranged::Unsatisfiable, "{text}");
        }
        for text in
            ["bytes=5-1", "bytes=", "bytes=-", "bytes=a-b", "bytes=+1-2", "items=0-1", "bytes=0-1,5-6"]
        {
            assert_eq!(of(text), Ranged::Whole, "{text}");
        }
        let conditional = HeaderMap::from_iter([
            (RANGE, "bytes=0-1".parse().unwrap()),
            (IF_RANGE, "\"x\"".parse().unwrap()),
        ]);
        assert_eq!(asked(&conditional, 100), Ranged::Whole);
    }

    #[test]
    fn an_empty_file_has_no_parts() {
        let headers = HeaderMap::from_iter([(RANGE, "bytes=0-".parse().unwrap())]);
        assert_eq!(asked(&headers, 0), Ranged::Unsatisfiable);
    }
}
