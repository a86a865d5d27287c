//! Keys: Ed25519, public ones in the form of C2SP signed notes (`NAME+HASH+KEY`).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::note::Note;
use crate::statement::Rotation;

/// The name of the key in signatures.
pub const KEY_NAME: &str = "palisade-audit";
/// The type of an Ed25519 key in a signed note.
const ED25519_TYPE: u8 = 1;
const PUBLIC_BYTES: usize = 32;
/// Length of the secret from which a key is made.
const SEED_BYTES: usize = 32;
/// Keys that a ring holds: a server rotates its key seldom.
const KEYS_MAX: usize = 256;

/// Why a text is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no public key of an audit; it has the form {KEY_NAME}+HASH+KEY, as `palisade audit key` prints it"
)]
pub struct KeyError;

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; PUBLIC_BYTES],
    id: [u8; 4],
}

impl PublicKey {
    fn new(bytes: [u8; PUBLIC_BYTES]) -> Self {
        let mut named = format!("{KEY_NAME}\n").into_bytes();
        named.push(ED25519_TYPE);
        named.extend_from_slice(&bytes);
        let hash = digest(&SHA256, &named);
        let mut id = [0; 4];
        id.copy_from_slice(&hash.as_ref()[..4]);
        Self { bytes, id }
    }

    /// Reads the form `NAME+HASH+KEY`.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.trim().splitn(3, '+');
        let (name, id, key) = (parts.next(), parts.next(), parts.next());
        let (Some(KEY_NAME), Some(id), Some(key)) = (name, id, key) else { return Err(KeyError) };
        let decoded = STANDARD.decode(key).map_err(|_| KeyError)?;
        let Some((&ED25519_TYPE, bytes)) = decoded.split_first() else { return Err(KeyError) };
        let key = Self::new(bytes.try_into().map_err(|_| KeyError)?);
        if key.id_text() == id { Ok(key) } else { Err(KeyError) }
    }

    /// The first bytes of a signature by this key.
    pub(crate) fn id(&self) -> [u8; 4] {
        self.id
    }

    /// The short name of the key: 8 hexadecimal digits.
    pub fn id_text(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.bytes).verify(text, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut typed = vec![ED25519_TYPE];
        typed.extend_from_slice(&self.bytes);
        write!(f, "{KEY_NAME}+{}+{}", self.id_text(), STANDARD.encode(typed))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SigningKey {
    /// The key of a secret of 32 random bytes; `None` for any other length.
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        if seed.len() != SEED_BYTES {
            return None;
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = PublicKey::new(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, public })
    }

    /// Its public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, text: &[u8]) -> Vec<u8> {
        self.pair.sign(text).as_ref().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The keys that a verifier trusts: those that it was given, and those that they named as their successors.
#[derive(Debug, Clone, Default)]
pub struct KeyRing(Vec<PublicKey>);

impl KeyRing {
    /// Trusts these keys.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self(keys.into_iter().take(KEYS_MAX).collect())
    }

    /// Reads keys, one per line; empty lines and lines that begin with `#` are passed over.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<_> = lines.map(PublicKey::parse).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(KeyError) } else { Ok(Self::new(keys)) }
    }

    /// Adds all keys of another ring.
    pub fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|key| self.add(key));
    }

    /// All keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.0
    }

    /// Trusts the key that a rotation names, if a trusted key signed the rotation.
    pub fn learn(&mut self, rotation: &Note) -> bool {
        match Rotation::open(rotation, self) {
            Ok(Rotation { new, .. }) => {
                self.add(new);
                true
            }
            Err(_) => false,
        }
    }

    fn add(&mut self, key: PublicKey) {
        if !self.0.contains(&key) && self.0.len() < KEYS_MAX {
            self.0.push(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_read_as_it_is_written() {
        let key = SigningKey::from_seed(&[7; 32]).unwrap();
        let text = key.public().to_string();
        assert_eq!(PublicKey::parse(&text), Ok(key.public().clone()));
        let other = SigningKey::from_seed(&[8; 32]).unwrap();
        let mixed = text.replace(&key.public().id_text(), &other.public().id_text());
        assert_eq!(PublicKey::parse(&mixed), Err(KeyError), "the hash belongs to another key");
        assert_eq!(PublicKey::parse("palisade-audit+00000000+AAAA"), Err(KeyError));
        assert!(SigningKey::from_seed(&[7; 31]).is_none());
    }

    #[test]
    fn keys_are_read_one_per_line() {
        let key = SigningKey::from_seed(&[7; 32]).unwrap();
        let ring = KeyRing::parse(&format!("# a comment\n\n{}\n", key.public())).unwrap();
        assert_eq!(ring.keys(), [key.public().clone()]);
        assert!(KeyRing::parse("\n").is_err());
    }
}
