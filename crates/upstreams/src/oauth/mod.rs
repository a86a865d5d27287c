//! OAuth to upstream servers: a login for one principal, and its tokens on every request to that server.
//!
//! ```text
//! login: discover -> register, or a given client -> the user opens the address -> loopback callback -> token -> disk
//! use:   disk -> refresh if it is about to end -> `Authorization: Bearer` -> 401: refresh once -> login_required
//! ```
//! What must hold: tokens that callers present to Palisade never come here; a token goes to the server it was made for and
//! to no other; each principal has its own tokens, and the owner of the server has those of the command line.

mod callback;
mod discovery;
mod fetch;
#[cfg(test)]
mod refresh_tests;
mod tokens;
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use policy::Principal;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use self::callback::{Callback, Expected};
use self::discovery::{Discovered, discover, text};
use self::fetch::{Sent, address, ask, form};
use self::tokens::now_s;
pub(crate) use self::tokens::{Granted, TokenStore};
use self::turns::CredentialRefresh;
use crate::host::{ToolError, ToolErrorCode};
use crate::tls::Dialer;

/// How long the user may take.
const LOGIN_PATIENCE: Duration = Duration::from_secs(300);
/// A token that ends so soon is refreshed before it is used.
const EARLY_S: u64 = 30;
const RANDOM_BYTES: usize = 32;

/// A login.
#[derive(Debug, Clone, Default)]
pub struct Login {
    /// For whom.
    pub principal: Option<Principal>,
    /// The scopes to ask for. `None`: what the server suggests.
    pub scope: Option<String>,
    /// A client that is registered already, or the address of its metadata.
    pub client_id: Option<String>,
}

pub(crate) fn failed(message: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorCode::LoginRequired, message)
}

/// The principal whose tokens are used: the owner of the server has one set, however the owner is connected.
pub(crate) fn holder(principal: &Principal) -> Principal {
    if principal.is_owner() { Principal::local() } else { principal.clone() }
}

/// The error of a server that wants a login.
pub(crate) fn login_required(server: &str, what: &str) -> ToolError {
    let remedy =
        format!("the operator runs `palisade tools login {server}`, or sets `headers` of the server");
    ToolError::new(ToolErrorCode::LoginRequired, format!("the server `{server}` {what}")).with_remedy(remedy)
}

/// The tokens of one principal for one server.
pub(crate) struct Credential {
    pub(crate) server: String,
    pub(crate) principal: Principal,
    pub(crate) url: Uri,
    pub(crate) store: TokenStore,
    pub(crate) dialer: Dialer,
    known: Mutex<Known>,
    turn: Arc<CredentialRefresh>,
}

/// The tokens that are in use.
#[derive(Default)]
struct Known {
    /// `None` until they are read from the disk.
    now: Option<Granted>,
    /// Those before: a result may still hold them.
    before: Option<Granted>,
}

impl Credential {
    pub(crate) fn new(
        server: &str,
        principal: &Principal,
        url: &Uri,
        parts: (TokenStore, Dialer),
    ) -> Arc<Self> {
        let (store, dialer) = parts;
        let (server, principal, url) = (server.to_owned(), holder(principal), url.clone());
        let turn = store.turns.of(&server, &principal);
        Arc::new(Self { server, principal, url, store, dialer, known: Mutex::default(), turn })
    }

    fn load(&self) -> Option<Granted> {
        self.store.load(&self.server, &self.principal, &self.url.to_string())
    }

    /// The access token; `None` without a login.
    pub(crate) async fn bearer(self: &Arc<Self>) -> Option<String> {
        let known = self.known().now.clone();
        let known = match known {
            Some(known) => known,
            None => self.keep(self.load()?),
        };
        let is_ending = known.expires_s.is_some_and(|at| at <= now_s() + EARLY_S);
        if !is_ending || known.refresh_token.is_none() {
            return Some(known.access_token);
        }
        self.refreshed(&known.access_token).await.or(Some(known.access_token))
    }

    /// The tokens that were sent last and those before them, which results must not show.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let known = self.known();
        let both = [&known.now, &known.before].into_iter().flatten();
        let tokens = both.flat_map(|one| [Some(one.access_token.clone()), one.refresh_token.clone()]);
        tokens.flatten().collect()
    }

    /// Refreshes the tokens, unless another process, a login or `forget` was first.
    async fn exchanged(&self, refused: &str) -> Option<String> {
        let turn = self.store.refresh_turn(&self.server, &self.principal).await;
        let turn = turn.inspect_err(|error| {
            tracing::warn!(server = self.server, reason = %error, "upstream_token_turn_not_taken");
        });
        let _turn = turn.ok()?;
        let known = self.load()?;
        if known.access_token != refused {
            return Some(self.keep(known).access_token);
        }
        let refresh_token = known.refresh_token.clone()?;
        let endpoint = address(&known.token_endpoint).ok()?;
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("client_id", known.client_id.as_str()),
            ("resource", known.resource.as_str()),
        ];
        let answer = ask(&self.dialer, &endpoint, Sent::Form(&fields)).await.ok()?;
        if !answer.status.is_success() {
            tracing::warn!(
                server = self.server,
                status = answer.status.as_u16(),
                "upstream_token_not_refreshed"
            );
            return None;
        }
        let granted = granted(&answer.object(), known.clone())?;
        let (store, server, principal) = (self.store.clone(), self.server.clone(), self.principal.clone());
        let new = granted.clone();
        let kept = tokio::task::spawn_blocking(move || store.replace(&server, &principal, (&known, &new)));
        match kept.await.map_err(std::io::Error::other).flatten() {
            Ok(Some(now)) => Some(self.keep(now).access_token),
            // They were forgotten meanwhile.
            Ok(None) => {
                self.look_again();
                None
            }
            Err(error) => {
                tracing::error!(server = self.server, reason = %error, "upstream_token_not_kept");
                Some(self.keep(granted).access_token)
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, granted: Granted) -> Granted {
        let mut known = self.known();
        if let Some(before) = known.now.replace(granted.clone())
            && before.access_token != granted.access_token
        {
            known.before = Some(before);
        }
        granted
    }

    /// Looks at the disk again before the next request: there may be a new login.
    pub(crate) fn look_again(&self) {
        let mut known = self.known();
        if let Some(before) = known.now.take() {
            known.before = Some(before);
        }
    }

    /// Logs the principal in. `show` gets the address that the user opens.
    pub(crate) async fn login(&self, login: &Login, show: impl FnOnce(&str)) -> Result<String, ToolError> {
        let server = discover(&self.dialer, &self.url).await?;
        let callback = Callback::open().await?;
        let client_id = self.client(login, &server, callback.redirect()).await?;
        let (verifier, state) = (random()?, random()?);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let scope = login.scope.clone().unwrap_or_else(|| server.scopes.join(" "));
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", client_id.as_str()),
            ("redirect_uri", callback.redirect()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
            ("state", state.as_str()),
            ("resource", server.resource.as_str()),
        ];
        if !scope.is_empty() {
            fields.push(("scope", scope.as_str()));
        }
        let endpoint = server.authorization_endpoint.to_string();
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        show(&format!("{endpoint}{joint}{}", form(&fields)));
        let issuer = server.names_issuer.then_some(server.issuer.as_str());
        let code = callback.code(&Expected { state: &state, issuer }, LOGIN_PATIENCE).await?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", callback.redirect()),
            ("client_id", client_id.as_str()),
            ("code_verifier", verifier.as_str()),
            ("resource", server.resource.as_str()),
        ];
        let answer = ask(&self.dialer, &server.token_endpoint, Sent::Form(&fields)).await?;
        if !answer.status.is_success() {
            let error = text(&answer.object(), "error").unwrap_or_default();
            let shown = crate::clean::line(&error, 100);
            return Err(failed(format!("the authorization server gave no token: {shown}")));
        }
        let empty = Granted {
            url: self.url.to_string(),
            resource: server.resource.clone(),
            token_endpoint: server.token_endpoint.to_string(),
            client_id,
            access_token: String::new(),
            refresh_token: None,
            expires_s: None,
            scope,
        };
        let granted = granted(&answer.object(), empty).ok_or_else(|| failed("the answer has no token"))?;
        let unkept = |error: std::io::Error| failed(format!("the tokens cannot be kept: {error}"));
        self.store.save(&self.server, &self.principal, &granted).map_err(unkept)?;
        Ok(self.keep(granted).scope)
    }

    /// The client that asks: the given one, or one that is registered now.
    async fn client(&self, login: &Login, server: &Discovered, redirect: &str) -> Result<String, ToolError> {
        if let Some(client_id) = &login.client_id {
            if is_document(client_id) {
                check_document(client_id)?;
                if !server.takes_metadata_documents {
                    return Err(failed(
                        "the authorization server takes no client by the address of its metadata",
                    )
                    .with_remedy("leave --client-id out, or register a client there"));
                }
            }
            return Ok(client_id.clone());
        }
        let Some(endpoint) = &server.registration_endpoint else {
            return Err(failed("the authorization server registers no clients by itself")
                .with_remedy("register one there, and give its id with --client-id"));
        };
        let client = json!({
            "client_name": "Palisade",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        let answer = ask(&self.dialer, endpoint, Sent::Json(&client)).await?;
        let client_id = text(&answer.object(), "client_id").filter(|_| answer.status.is_success());
        client_id.ok_or_else(|| failed("the authorization server did not register this client"))
    }
}

/// Whether a client is named by the address of its metadata.
fn is_document(client_id: &str) -> bool {
    let scheme = client_id.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| ["https", "http"].iter().any(|one| scheme.eq_ignore_ascii_case(one)))
}

/// Checks the address of a client's metadata (draft-ietf-oauth-client-id-metadata-document, section 3): https, with a path, and
/// nothing that two servers could read differently.
fn check_document(client_id: &str) -> Result<(), ToolError> {
    let url: Option<Uri> = client_id.parse().ok();
    let is_fine = url.is_some_and(|url| {
        let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let mut parts = url.path().split('/');
        url.scheme_str() == Some("https")
            && is_plain
            && url.path().len() > 1
            && parts.all(|part| !matches!(part, "." | ".."))
            && !client_id.contains('#')
    });
    match is_fine {
        true => Ok(()),
        false => Err(failed("--client-id is no address of a client metadata document")
            .with_remedy("use an https address with a path, without `#`, user, `.` and `..`")),
    }
}

/// The tokens of an answer, with what is known already. `None` if the answer has none that can be sent.
fn granted(answer: &Map<String, Value>, before: Granted) -> Option<Granted> {
    let is_bearer = text(answer, "token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let access_token = text(answer, "access_token").filter(|token| is_bearer && is_sendable(token))?;
    let lifetime_s = answer.get("expires_in").and_then(Value::as_u64);
    Some(Granted {
        access_token,
        refresh_token: text(answer, "refresh_token").or(before.refresh_token),
        expires_s: lifetime_s.map(|lifetime_s| now_s().saturating_add(lifetime_s)),
        scope: text(answer, "scope").unwrap_or(before.scope),
        ..before
    })
}

fn is_sendable(token: &str) -> bool {
    (1..=16 << 10).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
}

fn random() -> Result<String, ToolError> {
    let mut bytes = [0; RANDOM_BYTES];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match count {
        Ok(RANDOM_BYTES) => Ok(URL_SAFE_NO_PAD.encode(bytes)),
        _ => Err(failed("this machine gives no random numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_https_addresses_name_a_client() {
        check_document("https://client.example/palisade.json").unwrap();
        check_document("https://client.example:8443/a/b?c=d").unwrap();
        for wrong in [
            "http://client.example/a",
            "https://client.example",
            "https://client.example/",
            "https://user@client.example/a",
            "https://client.example/a#b",
            "https://client.example/a/../b",
            "HTTPS://client.example /a",
        ] {
            assert!(is_document(wrong) && check_document(wrong).is_err(), "{wrong}");
        }
        assert!(!is_document("a-registered-client") && !is_document("urn:client"));
    }
}
