//! Keys of issuers over time: changes, floods, and issuers that misbehave or are gone.

use std::time::Duration;

use super::issuer_keys::{FRESH, KEPT, PAUSE};
use super::*;

/// Moves the clock of timers and intervals. The clock of tokens stays.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits until a condition holds, for at most ten seconds.
async fn until(condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen");
}

/// An issuer that gives an unusable answer: its tokens are refused, because there is no key.
async fn unavailable_with(answer: Answer) {
    let signer = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&signer]).await;
    issuer.set(answer);
    let oauth = issuer.oauth();
    let refused = oauth.check(&signer.token(&issuer.claims())).await;
    assert_eq!(refused, Err(TokenRefused::IssuerUnavailable));
}

#[tokio::test]
async fn a_flood_of_unknown_key_ids_causes_one_fetch_and_holds_up_nobody() {
    let signer = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&signer]).await;
    let oauth = Arc::new(issuer.oauth());
    let good = signer.token(&issuer.claims());
    assert!(oauth.check(&good).await.is_ok());
    pass(PAUSE).await;
    // The issuer does not answer, so that a token that waits for it is seen to wait.
    issuer.set(Answer::Silent);
    let flood: Vec<_> = (0..200)
        .map(|number| {
            let (oauth, stranger) = (Arc::clone(&oauth), Signer::new(&format!("k{number}"), "ES256"));
            let token = stranger.token(&issuer.claims());
            tokio::spawn(async move { oauth.check(&token).await })
        })
        .collect();
    until(|| issuer.reads() == 2).await;
    for _ in 0..20 {
        let checked = tokio::time::timeout(Duration::from_secs(1), oauth.check(&good)).await;
        assert!(checked.unwrap().is_ok(), "a valid token waited for the issuer");
    }
    for one in flood {
        assert_eq!(one.await.unwrap(), Err(TokenRefused::UnknownKey));
    }
    assert_eq!(issuer.reads(), 2, "one at the start, one for the flood");
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_end_the_fetch() {
    let old = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&old]).await;
    let oauth = Arc::new(issuer.oauth());
    assert!(oauth.check(&old.token(&issuer.claims())).await.is_ok());
    pass(PAUSE).await;
    let new = Signer::new("b", "ES256");
    issuer.desk.keys.lock().unwrap().push(new.jwk());
    // The client leaves while the issuer has not answered yet.
    issuer.set(Answer::Silent);
    let (token, asked) = (new.token(&issuer.claims()), Arc::clone(&oauth));
    let leaver = tokio::spawn(async move { asked.check(&token).await.is_ok() });
    until(|| issuer.reads() == 2).await;
    leaver.abort();
    assert!(leaver.await.is_err(), "it left before the answer");
    issuer.set(Answer::Well);
    assert!(oauth.check(&new.token(&issuer.claims())).await.is_ok());
    assert_eq!(issuer.reads(), 2);
}

#[tokio::test]
async fn a_new_key_is_found_and_a_removed_one_is_out_of_force_with_the_next_reading() {
    let old = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&old]).await;
    let oauth = issuer.oauth();
    assert!(oauth.check(&old.token(&issuer.claims())).await.is_ok());
    let new = Signer::new("b", "ES256");
    *issuer.desk.keys.lock().unwrap() = vec![new.jwk()];
    let too_early = oauth.check(&new.token(&issuer.claims())).await;
    assert_eq!(too_early, Err(TokenRefused::UnknownKey), "at most one attempt in 30 s");
    pass(PAUSE).await;
    assert!(oauth.check(&new.token(&issuer.claims())).await.is_ok());
    let removed = oauth.check(&old.token(&issuer.claims())).await;
    assert_eq!(removed, Err(TokenRefused::UnknownKey));
    *issuer.desk.keys.lock().unwrap() = Vec::new();
    pass(FRESH).await;
    until(|| issuer.reads() == 3).await;
    until(|| oauth.issuers[0].keys().is_some_and(|keys| keys.len() == 0)).await;
    assert_eq!(oauth.check(&new.token(&issuer.claims())).await, Err(TokenRefused::UnknownKey));
}

#[tokio::test]
async fn a_token_without_a_key_id_finds_the_key_that_replaced_another() {
    let old = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&old]).await;
    let oauth = issuer.oauth();
    let bare = |signer: &Signer| signer.sign(r#"{"alg":"ES256"}"#, &issuer.claims().to_string());
    assert!(oauth.check(&bare(&old)).await.is_ok());
    let new = Signer::new("a", "ES256");
    *issuer.desk.keys.lock().unwrap() = vec![new.jwk()];
    assert_eq!(oauth.check(&bare(&new)).await, Err(TokenRefused::Signature));
    pass(PAUSE).await;
    assert!(oauth.check(&bare(&new)).await.is_ok());
    issuer.desk.keys.lock().unwrap().push(Signer::new("b", "ES256").jwk());
    pass(PAUSE).await;
    assert_eq!(oauth.check(&bare(&old)).await, Err(TokenRefused::UnknownKey), "two keys fit");
}

#[tokio::test]
async fn keys_stay_in_force_for_a_day_while_the_issuer_is_down() {
    let signer = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&signer]).await;
    let oauth = issuer.oauth();
    assert!(oauth.check(&signer.token(&issuer.claims())).await.is_ok());
    issuer.set(Answer::Status(503));
    pass(KEPT - Duration::from_secs(60)).await;
    assert!(oauth.check(&signer.token(&issuer.claims())).await.is_ok());
    pass(Duration::from_secs(61)).await;
    let refused = oauth.check(&signer.token(&issuer.claims())).await;
    assert_eq!(refused, Err(TokenRefused::IssuerUnavailable));
    issuer.set(Answer::Well);
    pass(PAUSE).await;
    assert!(oauth.check(&signer.token(&issuer.claims())).await.is_ok());
}

#[tokio::test]
async fn a_redirect_of_the_keys_is_not_followed() {
    let attacker = Signer::new("a", "ES256");
    let lair = TestIssuer::start(&[&attacker]).await;
    let issuer = TestIssuer::start(&[&attacker]).await;
    issuer.set(Answer::Redirect(format!("{}/jwks", lair.url)));
    let refused = issuer.oauth().check(&attacker.token(&issuer.claims())).await;
    assert_eq!(refused, Err(TokenRefused::IssuerUnavailable));
    assert_eq!(lair.reads(), 0);
}

#[tokio::test]
async fn a_huge_document_of_keys_is_refused() {
    let keys = |count: usize| {
        let all: Vec<_> = (0..count).map(|number| json!({"kty": "oct", "kid": number.to_string()})).collect();
        json!({ "keys": all }).to_string()
    };
    unavailable_with(Answer::Text(keys(65))).await;
    unavailable_with(Answer::Text(format!("{{\"keys\":[],\"pad\":\"{}\"}}", "x".repeat(300 << 10)))).await;
}

#[tokio::test]
async fn a_document_that_is_no_key_set_is_refused() {
    for text in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>", r#"{"keys":[],"keys":[]}"#] {
        unavailable_with(Answer::Text(text.to_owned())).await;
    }
}

#[tokio::test]
async fn metadata_of_another_issuer_is_refused() {
    unavailable_with(Answer::Issuer("https://evil.example".to_owned())).await;
}

#[tokio::test]
async fn keys_come_over_tls_or_from_this_machine() {
    for address in ["http://192.0.2.1/jwks", "http://keys.example/jwks", "file:///etc/passwd", "/jwks", ""] {
        unavailable_with(Answer::JwksUri(address.to_owned())).await;
    }
}

#[tokio::test]
async fn keys_that_are_not_for_signatures_are_not_used() {
    let signer = Signer::new("a", "ES256");
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["encrypt"])),
        ("d", json!("AA")),
        ("alg", json!("ECDH-ES")),
        ("kty", json!("oct")),
        ("crv", json!("secp256k1")),
    ] {
        let issuer = TestIssuer::start(&[&signer]).await;
        issuer.desk.keys.lock().unwrap()[0][name] = value.clone();
        let refused = issuer.oauth().check(&signer.token(&issuer.claims())).await;
        assert_eq!(refused, Err(TokenRefused::UnknownKey), "{name}: {value}");
    }
}
