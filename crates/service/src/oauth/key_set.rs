//! The public keys of an issuer (JWK Set, RFC 7517).

use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

use super::jws;

/// The most keys of a set. A larger one is refused, because it is no set of signing keys.
pub(super) const KEYS_MAX: usize = 64;

/// All usable keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    kind: Kind,
    /// The only algorithm for which the issuer uses it, if it says so.
    algorithm: Option<Algorithm>,
    decoding: DecodingKey,
}

/// The type of a key decides which algorithms it can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// The outcome of looking for a key.
#[derive(Debug)]
pub(super) enum KeyChoice<'a> {
    /// The key.
    Key(&'a DecodingKey),
    /// There is a key of that id, and it is not for this algorithm.
    Unfit,
    /// There is no key of that id; or none was named, and the choice is not clear.
    Unknown,
}

impl KeySet {
    /// Reads a document. Keys that are not for signatures, or of a type that is not used here, are left out.
    pub(super) fn read(document: &Map<String, Value>) -> Result<Self, &'static str> {
        let Some(Value::Array(list)) = document.get("keys") else { return Err("the document has no `keys`") };
        match list.len() > KEYS_MAX {
            true => Err("the document has more than 64 keys"),
            false => Ok(Self(list.iter().filter_map(|key| Key::read(key.as_object()?)).collect())),
        }
    }

    /// The key for a token. Without an id there must be only one that fits.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> KeyChoice<'_> {
        let mut fitting = self.0.iter().filter(|key| id.is_none() || key.id.as_deref() == id);
        match id {
            Some(_) => {
                let mut is_known = false;
                let fits = fitting.find(|key| {
                    is_known = true;
                    key.fits(algorithm)
                });
                match fits {
                    Some(key) => KeyChoice::Key(&key.decoding),
                    None if is_known => KeyChoice::Unfit,
                    None => KeyChoice::Unknown,
                }
            }
            None => {
                let mut fitting = fitting.filter(|key| key.fits(algorithm));
                match (fitting.next(), fitting.next()) {
                    (Some(key), None) => KeyChoice::Key(&key.decoding),
                    _ => KeyChoice::Unknown,
                }
            }
        }
    }

    /// Number of usable keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Key {
    fn read(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        // A private key in a public document is no secret any more.
        let is_secret = jwk.contains_key("d") || jwk.contains_key("k");
        let is_for_signatures = match jwk.get("use") {
            None => true,
            Some(usage) => usage.as_str() == Some("sig"),
        };
        let may_verify = match jwk.get("key_ops") {
            None => true,
            Some(list) => list.as_array()?.iter().any(|operation| operation.as_str() == Some("verify")),
        };
        if is_secret || !is_for_signatures || !may_verify {
            return None;
        }
        let algorithm = match jwk.get("alg") {
            None => None,
            Some(name) => Some(jws::algorithm(name.as_str()?)?),
        };
        let (kind, decoding) = match (text("kty")?, text("crv")) {
            ("RSA", _) => (Kind::Rsa, DecodingKey::from_rsa_components(text("n")?, text("e")?)),
            ("EC", Some("P-256")) => (Kind::P256, DecodingKey::from_ec_components(text("x")?, text("y")?)),
            ("EC", Some("P-384")) => (Kind::P384, DecodingKey::from_ec_components(text("x")?, text("y")?)),
            ("OKP", Some("Ed25519")) => (Kind::Ed25519, DecodingKey::from_ed_components(text("x")?)),
            _ => return None,
        };
        Some(Self { id: text("kid").map(str::to_owned), kind, algorithm, decoding: decoding.ok()? })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let kind = match algorithm {
            Algorithm::ES256 => Kind::P256,
            Algorithm::ES384 => Kind::P384,
            Algorithm::EdDSA => Kind::Ed25519,
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => return false,
            _ => Kind::Rsa,
        };
        self.kind == kind && self.algorithm.is_none_or(|only| only == algorithm)
    }
}
