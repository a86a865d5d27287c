//! Tokens that must not be accepted, each with its reason.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::*;

async fn refused(oauth: &Oauth, token: &str) -> TokenRefused {
    match oauth.check(token).await {
        Err(refused) => refused,
        Ok(accepted) => panic!("accepted: {accepted:?}"),
    }
}

/// An issuer with one key, and the server that trusts it.
async fn scene() -> (Signer, TestIssuer, Oauth) {
    let signer = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&signer]).await;
    let oauth = issuer.oauth();
    assert!(oauth.check(&signer.token(&issuer.claims())).await.is_ok());
    (signer, issuer, oauth)
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    for audience in [
        json!("https://other.example/mcp"),
        json!("https://tools.example.com/mcp/"),
        json!("https://tools.example.com"),
        json!("https://TOOLS.example.com/mcp"),
        json!(["https://other.example/mcp"]),
        json!([]),
        json!([RESOURCE, 1]),
        json!([[RESOURCE]]),
        json!({"0": RESOURCE}),
        json!(1),
        json!(null),
    ] {
        let token = signer.token(&issuer.claims_with(json!({"aud": audience})));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Audience, "{audience}");
    }
}

#[tokio::test]
async fn a_token_of_an_unknown_issuer_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    for other in [json!("https://evil.example"), json!([issuer.url]), json!(null), json!(1), json!("")] {
        let token = signer.token(&issuer.claims_with(json!({"iss": other})));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Issuer, "{other}");
    }
}

#[tokio::test]
async fn an_issuer_with_a_trailing_slash_is_another_issuer() {
    let (signer, issuer, oauth) = scene().await;
    for other in [format!("{}/", issuer.url), issuer.url.replace("http", "HTTP"), format!("{} ", issuer.url)]
    {
        let token = signer.token(&issuer.claims_with(json!({"iss": other})));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Issuer, "{other}");
    }
}

#[tokio::test]
async fn a_key_of_one_issuer_signs_nothing_for_another() {
    let (signer, issuer, _) = scene().await;
    let own = Signer::new("a", "ES256");
    let other = TestIssuer::start(&[&own]).await;
    let oauth = oauth_of(&[&issuer.url, &other.url]);
    let forged = signer.token(&other.claims());
    assert_eq!(refused(&oauth, &forged).await, TokenRefused::Signature);
    let one = oauth.check(&signer.token(&issuer.claims())).await.unwrap().caller;
    let two = oauth.check(&own.token(&other.claims())).await.unwrap().caller;
    assert!(one.principal != two.principal && one.label != two.label, "the same subject, two issuers");
}

#[tokio::test]
async fn alg_none_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    let claims = issuer.claims().to_string();
    for name in ["none", "None", "NONE", "nOnE", "", "HS256", "HS512", "ES512", "es256", "RSA-OAEP"] {
        let header = json!({"alg": name, "kid": "a"}).to_string();
        let signed = signer.sign(&header, &claims);
        let bare = format!("{}.{}.", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        for token in [signed, bare] {
            assert_eq!(refused(&oauth, &token).await, TokenRefused::Algorithm, "{name}");
        }
    }
    for header in [r#"{"kid":"a"}"#, r#"{"alg":null,"kid":"a"}"#, r#"{"alg":["ES256"],"kid":"a"}"#] {
        assert_eq!(refused(&oauth, &signer.sign(header, &claims)).await, TokenRefused::Algorithm, "{header}");
    }
}

#[tokio::test]
async fn hs256_signed_with_the_public_key_is_refused() {
    let signer = Signer::new("a", "RS256");
    let issuer = TestIssuer::start(&[&signer]).await;
    let oauth = issuer.oauth();
    let jwk = signer.jwk();
    for secret in [jwk.to_string(), jwk["n"].as_str().unwrap().to_owned()] {
        let header = base64url(json!({"alg": "HS256", "kid": "a"}).to_string().as_bytes());
        let message = format!("{header}.{}", base64url(issuer.claims().to_string().as_bytes()));
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(message.as_bytes());
        let token = format!("{message}.{}", base64url(&mac.finalize().into_bytes()));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Algorithm);
    }
}

#[tokio::test]
async fn a_critical_header_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    for crit in [json!(["b64"]), json!(["exp"]), json!([]), json!(null), json!("x")] {
        let header = json!({"alg": "ES256", "kid": "a", "crit": crit, "b64": true}).to_string();
        let token = signer.sign(&header, &issuer.claims().to_string());
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Critical, "{crit}");
    }
}

#[tokio::test]
async fn a_token_bound_to_a_key_of_the_client_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    let claims = issuer.claims().to_string();
    for cnf in [r#"{"jkt":"x"}"#, "{}", "null"] {
        let bound = format!("{},\"cnf\":{cnf}}}", claims.trim_end_matches('}'));
        let token = signer.sign(&signer.header().to_string(), &bound);
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Confirmation, "{cnf}");
    }
}

#[tokio::test]
async fn a_token_that_never_expires_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    for expiry in [json!(null), json!("9999999999"), json!(-1), json!([9_999_999_999_u64]), json!(true)] {
        let token = signer.token(&issuer.claims_with(json!({"exp": expiry})));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::NoExpiry, "{expiry}");
    }
}

#[tokio::test]
async fn an_expired_token_is_refused_beyond_the_leeway() {
    let (signer, issuer, oauth) = scene().await;
    let expired = signer.token(&issuer.claims_with(json!({"exp": now_s() - 61})));
    assert_eq!(refused(&oauth, &expired).await, TokenRefused::Expired);
    let just = signer.token(&issuer.claims_with(json!({"exp": now_s() - 30})));
    assert!(oauth.check(&just).await.is_ok());
}

#[tokio::test]
async fn a_token_of_the_future_is_refused_beyond_the_leeway() {
    let (signer, issuer, oauth) = scene().await;
    for not_before in [json!(now_s() + 90), json!("0"), json!(-5), json!({})] {
        let token = signer.token(&issuer.claims_with(json!({"nbf": not_before})));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::NotYet, "{not_before}");
    }
    assert!(oauth.check(&signer.token(&issuer.claims_with(json!({"nbf": now_s() + 30})))).await.is_ok());
}

#[tokio::test]
async fn an_oversized_token_is_refused_before_it_is_read() {
    let (signer, issuer, oauth) = scene().await;
    let token = signer.token(&issuer.claims_with(json!({"pad": "x".repeat(jws::TOKEN_BYTES_MAX)})));
    assert_eq!(refused(&oauth, &token).await, TokenRefused::TooLong);
    assert_eq!(refused(&oauth, &"a".repeat(1 << 20)).await, TokenRefused::TooLong);
}

#[tokio::test]
async fn a_member_that_occurs_twice_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    let (header, claims) = (signer.header().to_string(), issuer.claims().to_string());
    let twice = |text: &str, member: &str| format!("{{{member},{}", &text[1..]);
    for member in [
        r#""sub":"root""#,
        r#""aud":"https://other.example""#,
        r#""iss":"https://evil.example""#,
        r#""exp":1"#,
        r#""\u0073ub":"root""#,
        r#""x":{"y":1,"y":2}"#,
    ] {
        let token = signer.sign(&header, &twice(&claims, member));
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Malformed, "{member}");
    }
    for member in [r#""alg":"none""#, r#""kid":"b""#, r#""typ":"JWT""#] {
        let token = signer.sign(&twice(&header, member), &claims);
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Malformed, "{member}");
    }
}

#[tokio::test]
async fn a_key_in_the_header_is_never_used() {
    let (_, issuer, oauth) = scene().await;
    let attacker = Signer::new("a", "ES256");
    let lair = TestIssuer::start(&[&attacker]).await;
    let at = format!("{}/jwks", lair.url);
    for (name, value) in [
        ("jwk", attacker.jwk()),
        ("jku", json!(at)),
        ("x5u", json!(at)),
        ("x5c", json!([base64url(b"certificate")])),
    ] {
        for key_id in ["a", "another"] {
            let mut header = json!({"alg": "ES256", "kid": key_id});
            header[name] = value.clone();
            let token = attacker.sign(&header.to_string(), &issuer.claims().to_string());
            let reason = refused(&oauth, &token).await;
            assert!(
                matches!(reason, TokenRefused::Signature | TokenRefused::UnknownKey),
                "{name}: {reason:?}"
            );
        }
    }
    assert_eq!(lair.reads(), 0, "the address in a header was followed");
}

#[tokio::test]
async fn a_key_of_another_type_than_the_algorithm_is_refused() {
    let (rsa, small, large) =
        (Signer::new("r", "RS256"), Signer::new("s", "ES256"), Signer::new("l", "ES384"));
    let edwards = Signer::new("e", "EdDSA");
    let issuer = TestIssuer::start(&[&rsa, &small, &large, &edwards]).await;
    let mut only_pss = Signer::new("p", "PS256").jwk();
    only_pss["alg"] = json!("PS256");
    issuer.desk.keys.lock().unwrap().push(only_pss);
    let oauth = issuer.oauth();
    for (signer, key_id, algorithm) in [
        (&rsa, "s", "RS256"),
        (&small, "r", "ES256"),
        (&small, "l", "ES256"),
        (&large, "s", "ES384"),
        (&edwards, "s", "EdDSA"),
        (&small, "e", "ES256"),
        (&rsa, "p", "RS256"),
    ] {
        let header = json!({"alg": algorithm, "kid": key_id}).to_string();
        let token = signer.sign(&header, &issuer.claims().to_string());
        assert_eq!(refused(&oauth, &token).await, TokenRefused::KeyMismatch, "{key_id} {algorithm}");
    }
}

#[tokio::test]
async fn another_kind_of_jwt_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    for kind in [json!("logout+jwt"), json!("dpop+jwt"), json!("id_token"), json!(""), json!(1), json!(null)]
    {
        let header = json!({"alg": "ES256", "kid": "a", "typ": kind}).to_string();
        let token = signer.sign(&header, &issuer.claims().to_string());
        assert_eq!(refused(&oauth, &token).await, TokenRefused::Type, "{kind}");
    }
}

#[tokio::test]
async fn a_changed_token_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    let token = signer.token(&issuer.claims());
    let (message, signature) = token.rsplit_once('.').unwrap();
    let header = message.split_once('.').unwrap().0;
    let raised = issuer.claims_with(json!({"scope": "palisade:admin"})).to_string();
    let mut altered = URL_SAFE_NO_PAD.decode(signature).unwrap();
    altered[10] ^= 1;
    for forged in [
        format!("{header}.{}.{signature}", base64url(raised.as_bytes())),
        format!("{message}.{}", base64url(&altered)),
        format!("{message}.{}", base64url(&[0; 64])),
        format!("{message}."),
        format!("{message}.{}", base64url(&altered[..63])),
    ] {
        assert_eq!(refused(&oauth, &forged).await, TokenRefused::Signature, "{forged}");
    }
    for wrong in
        ["", ".", "..", "...", "a.b.c", &format!("{token}."), &format!("{token}.x"), &token[1..], message]
    {
        assert_eq!(refused(&oauth, wrong).await, TokenRefused::Malformed, "{wrong}");
    }
    assert!(
        oauth.check(&format!(" {token}")).await.is_err() && oauth.check(&format!("{token}=")).await.is_err()
    );
}

#[tokio::test]
async fn a_key_id_that_is_too_long_is_refused() {
    let (signer, issuer, oauth) = scene().await;
    let header = json!({"alg": signer.algorithm, "kid": "x".repeat(257)}).to_string();
    let token = signer.sign(&header, &issuer.claims().to_string());
    assert_eq!(refused(&oauth, &token).await, TokenRefused::Malformed);
}
