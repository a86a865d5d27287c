//! Hashes of the chain, and digests of contents.

use std::fmt;

use ring::digest::{Context, SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Separates hashes of entries from all other uses of SHA-256.
const ENTRY_DOMAIN: &[u8] = b"palisade audit entry v1\n";
/// Separates the beginnings of chains.
const CHAIN_DOMAIN: &[u8] = b"palisade audit chain v1\n";
const BYTES: usize = 32;

/// A SHA-256 hash, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; BYTES]);

/// The digest of a content.
pub type Digest = Hash;

impl Hash {
    /// What the first entry of a chain names as the hash before it. It depends on the instance, so the beginning of one
    /// chain cannot be put before another.
    pub fn beginning(instance: &str) -> Self {
        Self::of_parts(&[CHAIN_DOMAIN, instance.as_bytes()])
    }

    /// The hash of an entry: over the domain, the hash before it, and the exact bytes of its line without the newline.
    pub fn of_entry(previous: &Self, line: &[u8]) -> Self {
        Self::of_parts(&[ENTRY_DOMAIN, &previous.0, line])
    }

    /// The digest of a content.
    pub fn of_content(content: &[u8]) -> Self {
        Self::from_ring(digest(&SHA256, content))
    }

    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        Self::from_ring(context.finish())
    }

    fn from_ring(digest: ring::digest::Digest) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let digits: &[u8; 2 * BYTES] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// Appends the 64 digits.
    pub(crate) fn write_to(&self, text: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in self.0 {
            text.push(DIGITS[usize::from(byte >> 4)]);
            text.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = Hash::of_content(b"abc");
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        let mut text = Vec::new();
        hash.write_to(&mut text);
        assert_eq!(text, hash.to_string().as_bytes());
        assert_eq!(Hash::parse(&hash.to_string().to_uppercase()), None);
        assert_eq!(Hash::parse("ba"), None);
    }

    #[test]
    fn chains_begin_differently() {
        assert_ne!(Hash::beginning("a"), Hash::beginning("b"));
    }
}
