//! The resource server against an issuer of its own on loopback: hostile tokens, and keys over time.

mod hostile;
mod keys;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RsaKeyPair,
};
use serde_json::{Value, json};

use super::*;

pub(super) const RESOURCE: &str = "https://tools.example.com/mcp";

/// How the issuer answers.
pub(super) enum Answer {
    Well,
    Status(u16),
    /// Redirects the reader of the keys to this address. The answer has keys too.
    Redirect(String),
    /// Answers with this text in place of the keys.
    Text(String),
    /// Names this issuer in the metadata.
    Issuer(String),
    /// Names this address of the keys in the metadata.
    JwksUri(String),
    /// Does not answer before it is told to answer otherwise.
    Silent,
}

pub(super) struct Desk {
    address: SocketAddr,
    pub(super) keys: Mutex<Vec<Value>>,
    pub(super) answer: Mutex<Answer>,
    /// How often the keys were read.
    pub(super) reads: AtomicUsize,
}

/// An issuer on loopback.
pub(super) struct TestIssuer {
    pub(super) url: String,
    pub(super) desk: Arc<Desk>,
}

impl TestIssuer {
    pub(super) async fn start(keys: &[&Signer]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Arc::new(Desk {
            address,
            keys: Mutex::new(keys.iter().map(|key| key.jwk()).collect()),
            answer: Mutex::new(Answer::Well),
            reads: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/jwks", get(jwks))
            .with_state(Arc::clone(&desk));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url: format!("http://{address}"), desk }
    }

    pub(super) fn set(&self, answer: Answer) {
        *self.desk.answer.lock().unwrap() = answer;
    }

    pub(super) fn reads(&self) -> usize {
        self.desk.reads.load(Ordering::SeqCst)
    }

    /// Claims of a token that is accepted.
    pub(super) fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": RESOURCE, "sub": "alice", "exp": now_s() + 600, "scope": "palisade:run"})
    }

    /// The claims with others in their place; `null` removes one.
    pub(super) fn claims_with(&self, changes: Value) -> Value {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                _ => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
            };
        }
        claims
    }

    pub(super) fn oauth(&self) -> Oauth {
        oauth_of(&[&self.url])
    }
}

pub(super) fn oauth_of(issuers: &[&str]) -> Oauth {
    let issuers = issuers.iter().map(|issuer| issuer.parse().unwrap()).collect();
    Oauth::start(&OauthOptions { issuers, resource: RESOURCE.parse().unwrap(), ca_file: None }).unwrap()
}

async fn metadata(State(desk): State<Arc<Desk>>) -> Response {
    let own = format!("http://{}", desk.address);
    let (issuer, jwks_uri) = match &*desk.answer.lock().unwrap() {
        Answer::Status(status) => return StatusCode::from_u16(*status).unwrap().into_response(),
        Answer::Issuer(other) => (other.clone(), format!("{own}/jwks")),
        Answer::JwksUri(other) => (own, other.clone()),
        _ => (own.clone(), format!("{own}/jwks")),
    };
    json!({"issuer": issuer, "jwks_uri": jwks_uri}).to_string().into_response()
}

async fn jwks(State(desk): State<Arc<Desk>>) -> Response {
    desk.reads.fetch_add(1, Ordering::SeqCst);
    while matches!(*desk.answer.lock().unwrap(), Answer::Silent) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let keys = || json!({"keys": *desk.keys.lock().unwrap()}).to_string();
    match &*desk.answer.lock().unwrap() {
        Answer::Status(status) => StatusCode::from_u16(*status).unwrap().into_response(),
        Answer::Redirect(to) => (StatusCode::FOUND, [(LOCATION, to.clone())], keys()).into_response(),
        Answer::Text(text) => text.clone().into_response(),
        _ => keys().into_response(),
    }
}

/// A key of an issuer.
pub(super) struct Signer {
    pub(super) id: String,
    pub(super) algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    pub(super) fn new(id: &str, algorithm: &'static str) -> Self {
        let random = SystemRandom::new();
        let ecdsa = |kind| {
            let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
            Pair::Ecdsa(EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap())
        };
        let pair = match algorithm {
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            "EdDSA" => {
                let document = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
            }
            // ring makes no RSA keys. This one is used in tests only.
            _ => Pair::Rsa(RsaKeyPair::from_pkcs8(include_bytes!("rsa.p8")).unwrap()),
        };
        Self { id: id.to_owned(), algorithm, pair }
    }

    /// The public key as an issuer publishes it.
    pub(super) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public: signature::RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "n": base64url(&public.n), "e": base64url(&public.e)})
            }
            Pair::Ecdsa(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y)})
            }
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    pub(super) fn header(&self) -> Value {
        json!({"alg": self.algorithm, "typ": "at+jwt", "kid": self.id})
    }

    /// A token with the usual header.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.sign(&self.header().to_string(), &claims.to_string())
    }

    /// A token of these very texts.
    pub(super) fn sign(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", base64url(&signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match self.algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ecdsa(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

pub(super) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn a_token_of_every_algorithm_is_accepted() {
    let algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
    let signers: Vec<_> = algorithms.into_iter().map(|name| Signer::new(name, name)).collect();
    let issuer = TestIssuer::start(&signers.iter().collect::<Vec<_>>()).await;
    let oauth = issuer.oauth();
    for signer in &signers {
        let accepted = oauth.check(&signer.token(&issuer.claims())).await;
        let accepted = accepted.unwrap_or_else(|refused| panic!("{}: {refused:?}", signer.algorithm));
        assert_eq!(accepted.caller.scopes.to_string(), "run");
        let label = format!("oauth:{}#alice", issuer.url.trim_start_matches("http://"));
        assert_eq!(&*accepted.caller.label, label);
        let left = accepted.expires.duration_since(SystemTime::now()).unwrap().as_secs();
        assert!((655..=660).contains(&left), "{left}");
    }
    assert_eq!(issuer.reads(), 1);
}

#[tokio::test]
async fn audiences_in_a_list_and_all_types_of_access_tokens_are_accepted() {
    let signer = Signer::new("a", "ES256");
    let issuer = TestIssuer::start(&[&signer]).await;
    let oauth = issuer.oauth();
    let claims =
        issuer.claims_with(json!({"aud": ["https://other.example", RESOURCE], "exp": now_s() as f64 + 9.5}));
    assert!(oauth.check(&signer.token(&claims)).await.is_ok());
    for kind in [json!("JWT"), json!("at+jwt"), json!("application/at+jwt"), json!("AT+JWT")] {
        let header = json!({"alg": "ES256", "typ": kind, "kid": "a"}).to_string();
        assert!(oauth.check(&signer.sign(&header, &issuer.claims().to_string())).await.is_ok(), "{kind}");
    }
    let bare = signer.sign(r#"{"alg":"ES256"}"#, &issuer.claims().to_string());
    assert!(oauth.check(&bare).await.is_ok(), "neither type nor key id, and only one key");
}
