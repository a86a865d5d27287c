//! What a token says: whether its terms hold here and now, and which caller its holder is.

use engine::{Caller, Principal};
use policy::{CLAIMS_MAX, Claims, Scope, Scopes};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::address::{Issuer, Resource};
use super::refused::TokenRefused;

/// By how much the clocks of an issuer and of this server may differ.
pub(super) const LEEWAY_S: u64 = 60;
/// The longest subject (OpenID Connect Core, section 2).
const SUBJECT_BYTES_MAX: usize = 255;
/// Number of hexadecimal digits of the digest in a principal.
const DIGEST_DIGITS: usize = 32;
/// How deep claims are looked for inside of others (`realm_access.roles`).
const DEPTH_MAX: usize = 4;
/// Claims about the token and not about its holder.
const ABOUT_TOKEN: [&str; 12] =
    ["exp", "nbf", "iat", "jti", "aud", "scope", "scp", "nonce", "at_hash", "c_hash", "auth_time", "sid"];

/// Checks the terms of a token, its audience and its times. Gives the second since 1970 at which it stops to count; the
/// leeway is in it.
pub(super) fn check_terms(
    claims: &Map<String, Value>,
    resource: &Resource,
    now_s: u64,
) -> Result<u64, TokenRefused> {
    if claims.contains_key("cnf") {
        return Err(TokenRefused::Confirmation);
    }
    let is_meant = |value: &Value| value.as_str() == Some(resource.as_str());
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().all(Value::is_string) && all.iter().any(is_meant),
        Some(one) => is_meant(one),
        None => false,
    };
    if !is_for_us {
        return Err(TokenRefused::Audience);
    }
    let expires_s = claims.get("exp").and_then(seconds).ok_or(TokenRefused::NoExpiry)?;
    let expires_s = expires_s.saturating_add(LEEWAY_S);
    if expires_s <= now_s {
        return Err(TokenRefused::Expired);
    }
    if let Some(not_before) = claims.get("nbf") {
        let not_before_s = seconds(not_before).ok_or(TokenRefused::NotYet)?;
        if not_before_s > now_s.saturating_add(LEEWAY_S) {
            return Err(TokenRefused::NotYet);
        }
    }
    Ok(expires_s)
}

/// A `NumericDate` (RFC 7519, section 2), which may have a fraction.
fn seconds(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else { return None };
    number.as_u64().or_else(|| {
        let fraction = number.as_f64().filter(|value| value.is_finite() && *value >= 0.0)?;
        // The conversion saturates.
        Some(fraction as u64)
    })
}

/// The caller that these claims of this issuer name.
pub(super) fn caller(claims: &Map<String, Value>, issuer: &Issuer) -> Result<Caller, TokenRefused> {
    let subject = match claims.get("sub") {
        Some(Value::String(subject)) if (1..=SUBJECT_BYTES_MAX).contains(&subject.len()) => subject,
        _ => return Err(TokenRefused::Subject),
    };
    let principal = Principal::new(&principal_name(issuer, subject)).ok_or(TokenRefused::Subject)?;
    let mut carried = Vec::new();
    for (name, value) in claims.iter().filter(|(name, _)| !ABOUT_TOKEN.contains(&name.as_str())) {
        carry(name, value, DEPTH_MAX, &mut carried);
    }
    // A part of the claims could mean another caller to a rule.
    if carried.len() > CLAIMS_MAX {
        return Err(TokenRefused::Claims);
    }
    Ok(Caller {
        principal,
        scopes: scopes(claims)?,
        label: format!("oauth:{}#{}", issuer.label(), escaped(subject)).into(),
        claims: Claims::new(carried),
        policy: None,
        secret_ms: 0,
    })
}

/// No issuer can name the principal of another one: the line end occurs in no issuer.
fn principal_name(issuer: &Issuer, subject: &str) -> String {
    let digest =
        Sha256::new().chain_update(issuer.as_str()).chain_update("\n").chain_update(subject).finalize();
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}{}", super::PRINCIPAL_PREFIX, &digits[..DIGEST_DIGITS])
}

/// Visible ASCII as it is, everything else, `%` and `#` as `%XX`: no two subjects have the same label, and none can pretend
/// to be another on a terminal.
fn escaped(subject: &str) -> String {
    subject.bytes().fold(String::new(), |mut text, byte| {
        match byte.is_ascii_graphic() && !matches!(byte, b'%' | b'#') {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// The scopes of this server among those of the token; others belong to other resources.
fn scopes(claims: &Map<String, Value>) -> Result<Scopes, TokenRefused> {
    let mut found = Vec::new();
    for value in ["scope", "scp"].iter().filter_map(|name| claims.get(*name)) {
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text],
            Value::Array(list) => {
                list.iter().map(Value::as_str).collect::<Option<_>>().ok_or(TokenRefused::Scope)?
            }
            _ => return Err(TokenRefused::Scope),
        };
        let names = texts.into_iter().flat_map(|text| text.split(' '));
        found.extend(names.filter_map(Scope::from_oauth_name));
    }
    Ok(found.into_iter().collect())
}

/// Adds the plain values of a claim under its name, and those inside of it under names with dots.
fn carry(name: &str, value: &Value, depth: usize, into: &mut Vec<(String, String)>) {
    // A binding has the form `claim:NAME=PATTERN`.
    if depth == 0 || name.contains('=') {
        return;
    }
    match value {
        Value::Null => {}
        Value::Bool(value) => into.push((name.to_owned(), value.to_string())),
        Value::Number(value) => into.push((name.to_owned(), value.to_string())),
        Value::String(value) => into.push((name.to_owned(), value.clone())),
        Value::Array(list) => list.iter().for_each(|value| carry(name, value, depth - 1, into)),
        Value::Object(members) => {
            for (member, value) in members {
                carry(&format!("{name}.{member}"), value, depth - 1, into);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issuer(text: &str) -> Issuer {
        text.parse().unwrap()
    }

    fn of(claims: Value) -> Result<Caller, TokenRefused> {
        caller(claims.as_object().unwrap(), &issuer("https://login.example.com/realms/a"))
    }

    #[test]
    fn two_issuers_with_the_same_subject_do_not_collide() {
        let claims = json!({"sub": "alice"});
        let one = caller(claims.as_object().unwrap(), &issuer("https://a.example")).unwrap();
        let other = caller(claims.as_object().unwrap(), &issuer("https://b.example")).unwrap();
        let slash = caller(claims.as_object().unwrap(), &issuer("https://a.example/")).unwrap();
        assert!(one.principal != other.principal && one.principal != slash.principal);
        assert!(one.label != other.label && one.label != slash.label);
        assert_eq!(&*one.label, "oauth:a.example#alice");
        assert_eq!(one.principal.as_str().len(), "oauth:".len() + DIGEST_DIGITS);
    }

    #[test]
    fn a_subject_cannot_pretend_to_be_another_in_its_label() {
        let label = |subject: &str| of(json!({"sub": subject})).unwrap().label;
        assert!(!label("mallory#admin").ends_with("#admin"), "the separator of issuer and subject");
        assert_eq!(&*label("auth0|x"), "oauth:login.example.com/realms/a#auth0|x");
        assert_eq!(&*label("a b%\n\u{202e}"), "oauth:login.example.com/realms/a#a%20b%25%0A%E2%80%AE");
        assert_ne!(label("a%20b"), label("a b"));
        for wrong in [json!({}), json!({"sub": ""}), json!({"sub": 1}), json!({"sub": "x".repeat(256)})] {
            assert_eq!(of(wrong), Err(TokenRefused::Subject));
        }
    }

    #[test]
    fn scopes_come_in_three_forms_and_others_are_ignored() {
        let scopes = |claims: Value| of(claims).map(|caller| caller.scopes.to_string());
        let run = || Ok("run".to_owned());
        assert_eq!(scopes(json!({"sub": "a", "scope": "openid palisade:run other:admin run"})), run());
        assert_eq!(scopes(json!({"sub": "a", "scp": ["palisade:run", "admin"]})), run());
        assert_eq!(scopes(json!({"sub": "a", "scp": "palisade:run"})), run());
        let both = json!({"sub": "a", "scope": "palisade:audit", "scp": ["palisade:sandbox"]});
        assert_eq!(scopes(both), Ok("run sandbox audit".to_owned()));
        assert_eq!(scopes(json!({"sub": "a"})), Ok(String::new()));
        for wrong in [json!({"sub": "a", "scope": 1}), json!({"sub": "a", "scp": [["palisade:admin"]]})] {
            assert_eq!(scopes(wrong), Err(TokenRefused::Scope));
        }
    }

    #[test]
    fn claims_of_a_caller_are_plain_values_and_bounded() {
        let claims = json!({
            "sub": "a", "groups": ["ops", "dev"], "realm_access": {"roles": ["admin"]}, "email_verified": true,
            "exp": 1, "jti": "x", "a=b": "c", "deep": [[[[["x"]]]]]
        });
        let caller = of(claims).unwrap();
        let carried: Vec<_> = caller.claims.iter().collect();
        let expected = [
            ("email_verified", "true"),
            ("groups", "dev"),
            ("groups", "ops"),
            ("realm_access.roles", "admin"),
            ("sub", "a"),
        ];
        assert_eq!(carried, expected);
        let many: Vec<_> = (0..CLAIMS_MAX).map(|number| number.to_string()).collect();
        assert_eq!(of(json!({"sub": "a", "groups": many})), Err(TokenRefused::Claims));
    }

    #[test]
    fn a_times_fraction_is_understood_and_an_impossible_one_is_not() {
        assert_eq!(seconds(&json!(1.5)), Some(1));
        for wrong in [json!(-1), json!("1"), json!(null), json!([1])] {
            assert_eq!(seconds(&wrong), None, "{wrong}");
        }
        let huge: Value = serde_json::from_str("1e400").unwrap();
        assert_eq!(seconds(&huge), None);
    }
}
