//! The form of a token: three parts, a header that this server accepts, claims that are one JSON object. Nothing here
//! trusts the token; the signature is checked afterwards, with the key that the header only names.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::object;
use super::refused::TokenRefused;

/// The longest token. A header of a request has room for it, and no issuer needs more.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 << 10;
/// The longest name of a key.
const KEY_ID_BYTES_MAX: usize = 256;
/// Media types of the header's `typ`, without `application/` (RFC 9068, section 2.1; RFC 7519, section 5.1).
const TYPES: [&str; 2] = ["at+jwt", "jwt"];

/// A token that has the right form, and whose signature is not checked.
#[derive(Debug)]
pub(super) struct Unverified {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    pub(super) claims: Map<String, Value>,
}

/// Reads a token. Members of the header that bring a key, or the address of one (`jwk`, `jku`, `x5c`, `x5u`), are not
/// looked at: keys come from the issuer.
pub(super) fn read(token: &str) -> Result<Unverified, TokenRefused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenRefused::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenRefused::Malformed);
    };
    let object = |part: &str| URL_SAFE_NO_PAD.decode(part).ok().and_then(|bytes| object::read(&bytes));
    let header = object(header).ok_or(TokenRefused::Malformed)?;
    if header.contains_key("crit") {
        return Err(TokenRefused::Critical);
    }
    let algorithm = match header.get("alg") {
        Some(Value::String(name)) => algorithm(name).ok_or(TokenRefused::Algorithm)?,
        _ => return Err(TokenRefused::Algorithm),
    };
    match header.get("typ") {
        None => {}
        Some(Value::String(name)) if is_type(name) => {}
        Some(_) => return Err(TokenRefused::Type),
    }
    let key_id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.clone()),
        Some(_) => return Err(TokenRefused::Malformed),
    };
    let claims = object(claims).ok_or(TokenRefused::Malformed)?;
    Ok(Unverified { algorithm, key_id, claims })
}

/// The algorithms that are accepted. Those with a shared secret (HS256 and so on) and `none` are not among them.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "RS256" => Algorithm::RS256,
        "RS384" => Algorithm::RS384,
        "RS512" => Algorithm::RS512,
        "PS256" => Algorithm::PS256,
        "PS384" => Algorithm::PS384,
        "PS512" => Algorithm::PS512,
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "EdDSA" => Algorithm::EdDSA,
        _ => return None,
    })
}

fn is_type(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TYPES.contains(&name.strip_prefix("application/").unwrap_or(&name))
}
