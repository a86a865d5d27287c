//! The text of a key: `plsk_<id>_<secret>_<check>`.
//!
//! The id finds the key. The secret has 256 random bits, so a fast digest protects it at rest as well as a slow one
//! would, and a caller cannot use the digest to stop the server. The check detects a typing error without a lookup; it
//! is no secret.

use std::fmt;
use std::sync::Arc;

use policy::Principal;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::store::StoreError;

const PREFIX: &str = "plsk_";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const CHECK_BYTES: usize = 3;
/// Separates the digests from each other and from other uses.
const DIGEST_DOMAIN: &[u8] = b"palisade key 1\0";
const CHECK_DOMAIN: &[u8] = b"palisade key check 1\0";

/// The id of a key: 16 hexadecimal digits. A key keeps it over rotations; a reused name gets another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(Arc<str>);

impl KeyId {
    /// The id with that text.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 2 * ID_BYTES && is_hex(text.as_bytes())).then(|| Self(text.into()))
    }

    pub(super) fn random() -> Result<Self, StoreError> {
        Ok(Self(hex(&random::<ID_BYTES>()?).into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The principal of the key's holder.
    pub fn principal(&self) -> Principal {
        Principal::of_key(&self.0)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is kept of a secret.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Compares in constant time.
impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyDigest {}

/// A digest is not shown.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest")
    }
}

/// The whole text of a key, to be shown once. It is never logged.
pub struct KeyText(String);

impl KeyText {
    /// A key of that id with a new secret, and what is kept of it.
    pub(super) fn random(id: &KeyId) -> Result<(Self, KeyDigest), StoreError> {
        let body = format!("{PREFIX}{id}_{}", hex(&random::<SECRET_BYTES>()?));
        let digest = digest(body.as_bytes());
        let check = hex(&check(body.as_bytes()));
        Ok((Self(format!("{body}_{check}")), digest))
    }

    /// The text, for its new holder.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText")
    }
}

/// A key as a caller shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownKey {
    /// Which key it claims to be.
    pub id: KeyId,
    /// The digest of its secret.
    pub digest: KeyDigest,
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAKey {
    /// It does not begin like one, so it may be another kind of credential.
    Other,
    /// It begins like one, but its form or its check is wrong.
    Mistyped,
}

impl ShownKey {
    /// Reads the text of a key. Only the exact form counts: lower case, no spaces.
    pub fn parse(text: &[u8]) -> Result<Self, NotAKey> {
        let rest = text.strip_prefix(PREFIX.as_bytes()).ok_or(NotAKey::Other)?;
        let mut parts = rest.split(|byte| *byte == b'_');
        let (id, secret, shown) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(id), Some(secret), Some(check), None) => (id, secret, check),
            _ => return Err(NotAKey::Mistyped),
        };
        let body = &text[..text.len() - shown.len() - 1];
        let id = std::str::from_utf8(id).ok().and_then(KeyId::parse).ok_or(NotAKey::Mistyped)?;
        let is_whole = secret.len() == 2 * SECRET_BYTES && is_hex(secret);
        if !is_whole || hex(&check(body)).as_bytes() != shown {
            return Err(NotAKey::Mistyped);
        }
        Ok(Self { id, digest: digest(body) })
    }
}

fn digest(body: &[u8]) -> KeyDigest {
    KeyDigest(Sha256::new().chain_update(DIGEST_DOMAIN).chain_update(body).finalize().into())
}

fn check(body: &[u8]) -> [u8; CHECK_BYTES] {
    let whole: [u8; 32] = Sha256::new().chain_update(CHECK_DOMAIN).chain_update(body).finalize().into();
    [whole[0], whole[1], whole[2]]
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], StoreError> {
    let mut bytes = [0; BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(count) if count == BYTES => Ok(bytes),
        _ => {
            let cause = "the machine gives no random numbers".to_owned();
            Err(StoreError::Failed { step: "make a secret", cause })
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |text, byte| text + &format!("{byte:02x}"))
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (KeyId, KeyText, KeyDigest) {
        let id = KeyId::random().unwrap();
        let (text, digest) = KeyText::random(&id).unwrap();
        (id, text, digest)
    }

    #[test]
    fn a_key_says_its_id_and_proves_its_secret() {
        let (id, text, digest) = made();
        let shown = ShownKey::parse(text.reveal().as_bytes()).unwrap();
        assert_eq!((&shown.id, shown.digest), (&id, digest));
        assert_eq!(id.principal().as_str(), format!("key:{id}"));
        let (_, other) = KeyText::random(&id).unwrap();
        assert_ne!(shown.digest, other, "another secret of the same key");
        let hidden = format!("{text:?} {digest:?} {shown:?}");
        assert!(!hidden.contains(&text.reveal()[22..86]), "{hidden}");
    }

    #[test]
    fn every_typing_error_is_noticed_without_a_lookup() {
        let (_, text, _) = made();
        let text = text.reveal();
        assert_eq!(text.len(), 5 + 16 + 1 + 64 + 1 + 6);
        for index in 5..text.len() {
            for other in [b'0', b'f', b'_', b'A', b' ', 0xc3] {
                let mut bytes = text.as_bytes().to_vec();
                if std::mem::replace(&mut bytes[index], other) != other {
                    assert_eq!(ShownKey::parse(&bytes), Err(NotAKey::Mistyped), "byte {index}");
                }
            }
            assert_eq!(ShownKey::parse(&text.as_bytes()[..index]), Err(NotAKey::Mistyped), "cut at {index}");
        }
        for (shown, why) in [
            (String::new(), NotAKey::Other),
            ("plsd_x".to_owned(), NotAKey::Other),
            (format!(" {text}"), NotAKey::Other),
            (text.to_uppercase(), NotAKey::Other),
            (format!("{text}_"), NotAKey::Mistyped),
            (format!("{text}\n"), NotAKey::Mistyped),
            (text.replace('a', "а"), NotAKey::Mistyped),
            ("plsk_".to_owned(), NotAKey::Mistyped),
            (format!("plsk_{}", "_".repeat(8000)), NotAKey::Mistyped),
        ] {
            if shown != text {
                assert_eq!(ShownKey::parse(shown.as_bytes()), Err(why), "{shown}");
            }
        }
    }
}
