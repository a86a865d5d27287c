//! Questions to a DNS resolver and its answers (RFC 1035), for a resolver that the operator names.
//!
//! Only A and AAAA records of the asked name, or of a name that its CNAME records lead to, are taken. An answer is as
//! hostile as a request: every length is checked, and a pointer only leads backwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::host::Name;

/// The most addresses that are taken from one answer.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// The most records that are looked at.
const RECORDS_MAX: usize = 64;
const POINTERS_MAX: usize = 16;
const HEADER_BYTES: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const FLAG_ANSWER: u16 = 0x8000;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION: u16 = 0x0100;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    fn code(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 28,
        }
    }
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The addresses; none if the name has none, or does not exist.
    Addresses(Vec<IpAddr>),
    /// The answer did not fit; ask over TCP.
    Truncated,
    /// The resolver failed.
    Failed,
}

/// The bytes of a question.
pub(crate) fn question(id: u16, name: &Name, family: Family) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.as_str().len() + 6);
    for number in [id, FLAG_RECURSION, 1, 0, 0, 0] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for label in name.as_str().split('.') {
        // A name has labels of at most 63 bytes.
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&family.code().to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    bytes
}

/// Reads an answer. `None` if it is not the answer to this question.
pub(crate) fn answer(bytes: &[u8], id: u16, name: &Name, family: Family) -> Option<Answer> {
    let mut reader = Reader { bytes, at: 0 };
    let [own_id, flags, questions, answers, ..] =
        [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
    reader.skip(4)?;
    if own_id != id || flags & FLAG_ANSWER == 0 || questions != 1 {
        return None;
    }
    if reader.name()? != name.as_str() || reader.number()? != family.code() || reader.number()? != CLASS_IN {
        return None;
    }
    if flags & FLAG_TRUNCATED != 0 {
        return Some(Answer::Truncated);
    }
    match flags & 0xf {
        0 => Some(Answer::Addresses(addresses(&mut reader, answers, name, family).unwrap_or_default())),
        // The name does not exist.
        3 => Some(Answer::Addresses(Vec::new())),
        _ => Some(Answer::Failed),
    }
}

fn addresses(reader: &mut Reader<'_>, answers: u16, name: &Name, family: Family) -> Option<Vec<IpAddr>> {
    let mut wanted = name.as_str().to_owned();
    let mut found = Vec::new();
    for _ in 0..usize::from(answers).min(RECORDS_MAX) {
        let owner = reader.name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        reader.skip(4)?;
        let length = usize::from(reader.number()?);
        let end = reader.at.checked_add(length).filter(|end| *end <= reader.bytes.len())?;
        if owner == wanted && class == CLASS_IN {
            if kind == TYPE_CNAME {
                wanted = reader.name()?;
            } else if kind == family.code() && found.len() < ADDRESSES_MAX {
                found.extend(address(&reader.bytes[reader.at..end]));
            }
        }
        reader.at = end;
    }
    Some(found)
}

fn address(data: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(data).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    v4.or_else(|| <[u8; 16]>::try_from(data).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets))))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(2)?)?;
        self.at += 2;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name in lower case, with its pointers followed.
    fn name(&mut self) -> Option<String> {
        let (mut text, mut at, mut behind, mut pointers) = (String::new(), self.at, None, 0);
        loop {
            let length = *self.bytes.get(at)?;
            match length {
                0 => {
                    self.at = behind.unwrap_or(at + 1);
                    return Some(text);
                }
                1..=63 => {
                    let label = self.bytes.get(at + 1..at + 1 + usize::from(length))?;
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(&String::from_utf8_lossy(label).to_ascii_lowercase());
                    at += 1 + usize::from(length);
                }
                0xc0.. => {
                    let target = usize::from(length & 0x3f) << 8 | usize::from(*self.bytes.get(at + 1)?);
                    behind = behind.or(Some(at + 2));
                    pointers += 1;
                    if target >= at || pointers > POINTERS_MAX {
                        return None;
                    }
                    at = target;
                }
                _ => return None,
            }
            if text.len() > 255 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn name() -> Name {
        Name::parse("a.example").unwrap()
    }

    fn record(kind: u16, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len()).unwrap();
        // The owner is a pointer to the name of the question.
        [&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &length.to_be_bytes(), data].concat()
    }

    fn reply(flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = question(7, &name(), Family::V4);
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        [bytes, records.concat()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Answer> {
        answer(bytes, 7, &name(), Family::V4)
    }

    #[test]
    fn addresses_of_the_name_are_taken() {
        let bytes =
            reply(0x8180, &[record(1, &[1, 2, 3, 4]), record(28, &[0; 16]), record(1, &[5, 6, 7, 8])]);
        let expected = vec!["1.2.3.4".parse().unwrap(), "5.6.7.8".parse().unwrap()];
        assert_eq!(read(&bytes), Some(Answer::Addresses(expected)));
        assert_eq!(read(&reply(0x8183, &[])), Some(Answer::Addresses(Vec::new())));
        assert_eq!(read(&reply(0x8182, &[])), Some(Answer::Failed));
        assert_eq!(read(&reply(0x8380, &[])), Some(Answer::Truncated));
    }

    #[test]
    fn aliases_are_followed_and_other_owners_are_ignored() {
        let alias = [&[1, b'b'][..], &[7], b"example", &[0]].concat();
        let of_alias = [alias.clone(), vec![0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 9, 9, 9, 9]].concat();
        let of_other =
            [&[1, b'c', 7][..], b"example", &[0], &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 6, 6, 6, 6]].concat();
        let bytes = reply(0x8180, &[record(TYPE_CNAME, &alias), of_other, of_alias]);
        assert_eq!(read(&bytes), Some(Answer::Addresses(vec!["9.9.9.9".parse().unwrap()])));
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let bytes = reply(0x8180, &[record(1, &[1, 2, 3, 4])]);
        assert_eq!(answer(&bytes, 8, &name(), Family::V4), None);
        assert_eq!(answer(&bytes, 7, &Name::parse("b.example").unwrap(), Family::V4), None);
        assert_eq!(answer(&bytes, 7, &name(), Family::V6), None);
        assert_eq!(read(&question(7, &name(), Family::V4)), None);
    }

    proptest! {
        #![proptest_config(harness::properties())]

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..200), records in vec(any::<u8>(), 0..80)) {
            read(&bytes);
            read(&reply(0x8180, &[records.clone(), record(TYPE_CNAME, &records)]));
        }
    }
}
