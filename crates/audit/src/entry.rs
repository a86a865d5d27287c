//! One entry: a line with one JSON object.
//!
//! ```text
//! {"seq":7,"ms":1789000000000,"instance":"…","kind":"decision","prev":"<64 digits>","data":{…}}
//! ```
//! `data` depends on the kind. The set of kinds is open: a reader passes over kinds that it does not know, and they are
//! verified like all others.

use std::borrow::Cow;
use std::io::Write;

use serde::Deserialize;

use crate::hash::Hash;

/// The longest line. The writer refuses a longer one, and the verifier reports it.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Kinds of entries that this crate or several other crates name.
pub mod kind {
    /// The first entry of a chain.
    pub const STARTED: &str = "started";
    /// The last entry of a chain before its last checkpoint.
    pub const STOPPED: &str = "stopped";
    /// A signed checkpoint.
    pub const CHECKPOINT: &str = "checkpoint";
    /// A call was allowed or refused; written before it has an effect.
    pub const DECISION: &str = "decision";
    /// An allowed call ended.
    pub const OUTCOME: &str = "outcome";
    /// A run ended. Its receipt names this entry.
    pub const RUN: &str = "run";
    /// The audit key was replaced; signed by the key before.
    pub const KEY_ROTATED: &str = "key_rotated";
    /// Old segments were removed.
    pub const RETENTION: &str = "retention";
    /// Entries could not be written, and are not in the chain.
    pub const LOST: &str = "lost";
}

/// What every entry begins with.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Counts from 1 within a chain.
    pub seq: u64,
    /// Milliseconds since 1970, by the clock of the server.
    pub ms: u64,
    /// The chain.
    pub instance: &'a str,
    /// The kind of the entry.
    pub kind: &'a str,
    /// The hash of the entry before.
    pub prev: &'a Hash,
}

/// Writes the line of an entry into an empty buffer, without a newline. `data` is a JSON value; `instance` and `kind`
/// are plain names that need no escape.
pub fn line(buffer: &mut Vec<u8>, head: &Head<'_>, data: &str) {
    let Head { seq, ms, instance, kind, prev } = head;
    // Writing into memory does not fail.
    write!(buffer, r#"{{"seq":{seq},"ms":{ms},"instance":"{instance}","kind":"{kind}","prev":""#).ok();
    prev.write_to(buffer);
    buffer.extend_from_slice(br#"","data":"#);
    buffer.extend_from_slice(data.as_bytes());
    buffer.push(b'}');
}

/// The beginning of an entry, as it is read.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    /// Counts from 1 within a chain.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ms: u64,
    /// The chain.
    #[serde(borrow)]
    pub instance: Cow<'a, str>,
    /// The kind of the entry.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// The hash of the entry before.
    pub prev: Hash,
}

impl<'a> Envelope<'a> {
    /// Reads the beginning of a line; `None` if it is no entry.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
        Self::read_plain(line).or_else(|| serde_json::from_slice(line).ok())
    }

    /// Reads the exact form that [`line`] writes. `None` for any other, which is read as JSON.
    fn read_plain(line: &'a [u8]) -> Option<Self> {
        fn number<'l>(line: &'l [u8], before: &[u8]) -> Option<(u64, &'l [u8])> {
            let rest = line.strip_prefix(before)?;
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            Some((std::str::from_utf8(&rest[..count]).ok()?.parse().ok()?, &rest[count..]))
        }
        fn name<'l>(line: &'l [u8], before: &[u8]) -> Option<(&'l str, &'l [u8])> {
            let rest = line.strip_prefix(before)?;
            let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte == b'-';
            let count = rest.iter().take_while(is_plain).count();
            Some((std::str::from_utf8(&rest[..count]).ok()?, rest[count..].strip_prefix(b"\"")?))
        }
        let (seq, rest) = number(line, br#"{"seq":"#)?;
        let (ms, rest) = number(rest, br#","ms":"#)?;
        let (instance, rest) = name(rest, br#","instance":""#)?;
        let (kind, rest) = name(rest, br#","kind":""#)?;
        let (prev, rest) = name(rest, br#","prev":""#)?;
        let is_whole = rest.strip_prefix(br#","data":{"#).is_some_and(|data| data.ends_with(b"}}"));
        let prev = Hash::parse(prev).filter(|_| is_whole)?;
        Some(Self { seq, ms, instance: instance.into(), kind: kind.into(), prev })
    }

    /// What the line says besides.
    pub(crate) fn data(line: &[u8]) -> Option<serde_json::Value> {
        #[derive(Deserialize)]
        struct Body {
            data: serde_json::Value,
        }
        serde_json::from_slice::<Body>(line).ok().map(|body| body.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let prev = Hash::beginning("i");
        let mut written = Vec::new();
        line(
            &mut written,
            &Head { seq: 3, ms: 5, instance: "i", kind: "decision", prev: &prev },
            r#"{"a":1}"#,
        );
        let read = Envelope::read(&written).unwrap();
        assert_eq!((read.seq, read.ms, &*read.instance, &*read.kind), (3, 5, "i", "decision"));
        assert_eq!(read.prev, prev);
        assert_eq!(Envelope::data(&written).unwrap()["a"], 1);
    }

    #[test]
    fn other_forms_of_the_same_entry_are_read_alike() {
        let prev = Hash::beginning("i");
        let other = format!(
            r#"{{ "ms": 5, "seq": 3, "kind": "decision", "instance": "i", "prev": "{prev}", "data": {{}} }}"#
        );
        let read = Envelope::read(other.as_bytes()).unwrap();
        assert_eq!((read.seq, read.ms, &*read.instance, &*read.kind), (3, 5, "i", "decision"));
        let cut = format!(r#"{{"seq":3,"ms":5,"instance":"i","kind":"decision","prev":"{prev}","data":{{"#);
        assert!(Envelope::read(cut.as_bytes()).is_none());
    }

    #[test]
    fn a_line_with_a_part_twice_is_no_entry() {
        let prev = Hash::beginning("i");
        let twice =
            format!(r#"{{"seq":1,"seq":2,"ms":1,"instance":"i","kind":"k","prev":"{prev}","data":{{}}}}"#);
        assert!(Envelope::read(twice.as_bytes()).is_none());
    }
}
