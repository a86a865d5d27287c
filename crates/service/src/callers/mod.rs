//! Callers: the one place where a credential becomes a [`Caller`].
//!
//! ```text
//! bearer -> `plsk_...`  -> the keys of the state directory
//!        -> has a dot   -> an access token of an issuer ([`super::oauth`]), if there are any
//!        -> otherwise   -> the server's own token (key `owner`)
//!        -> none        -> `anonymous`, on a server that asks for no token
//! ```
//! [`super::gate`] asks for every request, [`super::files`] for the principal of a signed URL. A credential that is
//! shown and wrong is refused, also by a server that asks for none. Later code sees a [`Caller`], which has no secret,
//! and a [`Credential`], which tells when it ends.

mod credential;
mod keys;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderValue, StatusCode};
use engine::{Caller, Principal, SecretsBefore};
use tokio_util::sync::CancellationToken;

pub(crate) use self::credential::{Credential, bounded};
use self::keys::KeyRing;
use super::oauth::{self, Accepted, Oauth, ScopeChallenge, TokenRefused};
use super::reload::Replaceable;
use super::token::Token;

/// A longer bearer is no credential of any kind.
const BEARER_BYTES_MAX: usize = 8 << 10;
const NO_BEARER: &str = "a bearer token is needed: a key that the operator makes with `palisade keys create`, or the server's own \
     token (the file `token` of the state directory)";
const WRONG_BEARER: &str = "another bearer token is needed: the one shown is not valid here; the operator makes keys \
                            with `palisade keys create`, and finds the server's own token in the file `token` of \
                            the state directory";
/// The code for a credential that is shown and does not count (RFC 6750, section 3.1).
const INVALID_TOKEN: &str = "invalid_token";

/// A caller and what it showed.
#[derive(Debug, Clone)]
pub(crate) struct Identified {
    pub(crate) caller: Caller,
    pub(crate) credential: Credential,
}

impl From<Accepted> for Identified {
    fn from(Accepted { caller, expires }: Accepted) -> Self {
        Self { caller, credential: Credential::lasting().until(Some(expires)) }
    }
}

/// A request without a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unidentified {
    /// What is wrong, and what to do.
    pub(crate) reason: Cow<'static, str>,
    /// The code of RFC 6750, if a credential was shown.
    pub(crate) error: Option<&'static str>,
    /// The status of the answer.
    pub(crate) status: StatusCode,
}

impl Unidentified {
    /// Nothing was shown.
    pub(crate) fn missing() -> Self {
        Self { reason: NO_BEARER.into(), error: None, status: StatusCode::UNAUTHORIZED }
    }

    /// What was shown does not count.
    pub(crate) fn wrong(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), error: Some(INVALID_TOKEN), status: StatusCode::UNAUTHORIZED }
    }

    /// What was shown cannot be checked now.
    pub(crate) fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), error: None, status: StatusCode::SERVICE_UNAVAILABLE }
    }

    /// The credential ended during the request.
    pub(crate) fn ended() -> Self {
        Self::wrong("the credential of this request was revoked, replaced or has expired")
    }
}

/// Told when everything of a principal must end: its runs and its sessions.
pub(crate) type OnEnd = Box<dyn Fn(&Principal, SecretsBefore, Telling) + Send + Sync>;

/// Whether an end is told for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    First,
    Again,
}

/// The credentials of this server.
pub(crate) struct Callers {
    /// `None` on a server without a token.
    token: Option<Replaceable<TokenInForce>>,
    /// Whether a request without a credential is refused.
    asks: bool,
    oauth: Option<Oauth>,
    keys: Arc<KeyRing>,
    on_end: Arc<OnEnd>,
}

struct TokenInForce {
    token: Token,
    /// Cancelled when another token replaces this one.
    ended: CancellationToken,
    /// When it replaced another one, in seconds since the epoch.
    since_s: u64,
}

impl TokenInForce {
    fn new(token: Token, since: SystemTime) -> Self {
        let since_s = since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { token, ended: CancellationToken::new(), since_s }
    }
}

impl Callers {
    /// The callers of a server with this token, with the keys of its state directory, and with access tokens of issuers.
    /// `asks` says whether a request must show a credential.
    pub(crate) fn new(
        state_dir: &Path,
        token: Option<Token>,
        asks: bool,
        oauth: Option<Oauth>,
        on_end: OnEnd,
    ) -> Arc<Self> {
        // The file may have got another token while no server ran.
        let written = std::fs::metadata(super::token::path(state_dir)).and_then(|found| found.modified());
        let since = written.unwrap_or(UNIX_EPOCH);
        let token = token.map(|token| Replaceable::new(TokenInForce::new(token, since)));
        let keys = Arc::new(KeyRing::new(state_dir));
        keys.look(&on_end);
        Arc::new(Self { token, asks, oauth, keys, on_end: Arc::new(on_end) })
    }

    /// Ends what ended keys began, while the server lives.
    pub(crate) async fn watch(callers: Weak<Self>) {
        loop {
            tokio::time::sleep(keys::LOOK_PAUSE).await;
            let Some(callers) = callers.upgrade() else { return };
            callers.keys.look_aside(&callers.on_end).await;
        }
    }

    /// Writes down when keys were used last; for the end of the server.
    pub(crate) fn note_used(&self) {
        self.keys.note_used();
    }

    /// Whether a request must show a credential.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// Who shows this bearer.
    pub(crate) async fn identify(&self, bearer: Option<&[u8]>) -> Result<Identified, Unidentified> {
        match bearer {
            None if self.asks => Err(Unidentified::missing()),
            None => Ok(anonymous()),
            Some(shown) if shown.len() > BEARER_BYTES_MAX => {
                Err(Unidentified::wrong("the bearer token is too long to be one"))
            }
            Some(shown) if self.oauth.is_some() && oauth::is_access_token(shown) => {
                self.holder_of_access_token(shown).await
            }
            Some(shown) => match self.keys.identify(shown, &self.on_end).await {
                Some(identified) => identified,
                None => self.holder_of_token(shown).ok_or_else(|| Unidentified::wrong(WRONG_BEARER)),
            },
        }
    }

    /// A principal that is known from that time, as it is now: `None` if the credential that it had then has ended since.
    pub(crate) async fn holder(&self, principal: &Principal, since_s: u64) -> Option<Identified> {
        match principal.is_owner() {
            true => {
                let caller = match *principal == Principal::token_holder() {
                    true if self.token.as_ref().is_some_and(|token| token.get().since_s > since_s) => {
                        return None;
                    }
                    true => Caller::token_holder(),
                    false => Caller::owner(principal.clone()),
                };
                Some(Identified { caller, credential: Credential::lasting() })
            }
            false => match self.oauth.as_ref().and_then(|oauth| oauth.holder(principal)) {
                Some(accepted) => Some(accepted.into()),
                None => self.keys.holder((principal, since_s), &self.on_end).await,
            },
        }
    }

    /// The server's owner, on the control socket: the same caller as the holder of the token, if one is asked for.
    pub(crate) fn owner(&self) -> Identified {
        match &self.token {
            Some(token) if self.asks => {
                let credential = Credential::until_cancelled(token.get().ended.clone());
                Identified { caller: Caller::token_holder(), credential }
            }
            _ => anonymous(),
        }
    }

    /// The resource server, if there are issuers.
    pub(crate) fn oauth(&self) -> Option<&Oauth> {
        self.oauth.as_ref()
    }

    /// What refuses the calls of an OAuth caller that need more scopes.
    pub(crate) fn scope_challenge(&self, caller: &Caller) -> Option<ScopeChallenge> {
        self.oauth.as_ref()?.scope_challenge(caller)
    }

    async fn holder_of_access_token(&self, shown: &[u8]) -> Result<Identified, Unidentified> {
        let checked = match (&self.oauth, std::str::from_utf8(shown)) {
            (Some(oauth), Ok(token)) => oauth.check(token).await,
            _ => Err(TokenRefused::Malformed),
        };
        match checked {
            Ok(accepted) => Ok(accepted.into()),
            Err(refused) => {
                tracing::debug!(reason = refused.name(), "access_token_refused");
                Err(match refused {
                    TokenRefused::IssuerUnavailable => Unidentified::unavailable(refused.description()),
                    _ => Unidentified::wrong(refused.description()),
                })
            }
        }
    }

    /// The challenge of a refusal.
    pub(crate) fn challenge(&self, why: &Unidentified) -> HeaderValue {
        if let Some(oauth) = &self.oauth {
            // The sentences are ours. If one is no header's text, the plain challenge below is still right.
            let refused = why.error.map(|_| &*why.reason);
            if let Ok(challenge) = HeaderValue::from_str(&oauth.challenge(refused)) {
                return challenge;
            }
        }
        match why.error {
            Some(INVALID_TOKEN) => {
                HeaderValue::from_static("Bearer realm=\"palisade\", error=\"invalid_token\"")
            }
            _ => HeaderValue::from_static("Bearer realm=\"palisade\""),
        }
    }

    /// Puts another token in force. Everything that the old one began ends.
    pub(crate) fn replace_token(&self, read: Token) {
        let Some(token) = &self.token else { return };
        let replaced = token.get();
        if replaced.token != read {
            token.replace(TokenInForce::new(read, SystemTime::now()));
            replaced.ended.cancel();
            (self.on_end)(&Principal::token_holder(), SecretsBefore::ALL, Telling::First);
        }
    }

    fn holder_of_token(&self, shown: &[u8]) -> Option<Identified> {
        let in_force = self.token.as_ref()?.get();
        in_force.token.is(shown).then(|| Identified {
            caller: Caller::token_holder(),
            credential: Credential::until_cancelled(in_force.ended.clone()),
        })
    }
}

fn anonymous() -> Identified {
    Identified { caller: Caller::owner(Principal::anonymous()), credential: Credential::lasting() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use harness::TestFolder;

    use super::*;
    use crate::token;

    const NOWHERE: &str = "/nonexistent";

    fn made() -> (Token, String) {
        let folder = TestFolder::new();
        let (token, fresh) = token::obtain(folder.path()).unwrap();
        (token, fresh.unwrap().text)
    }

    #[tokio::test]
    async fn a_replaced_token_ends_what_it_began_and_its_principal_is_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let ((first, text), (second, other)) = (made(), made());
        let own = Arc::clone(&told);
        let on_end = Box::new(move |ended: &Principal, _: SecretsBefore, _: Telling| {
            own.lock().unwrap().push(ended.clone());
        });
        let callers = Callers::new(Path::new(NOWHERE), Some(first), true, None, on_end);
        let holder = callers.identify(Some(text.as_bytes())).await.unwrap();
        assert_eq!((&*holder.caller.label, holder.caller.principal.as_str()), ("owner", "token"));
        callers.replace_token(made_again(&text));
        assert!(told.lock().unwrap().is_empty(), "the same token changes nothing");
        callers.replace_token(second);
        holder.credential.ended().await;
        assert_eq!(*told.lock().unwrap(), [Principal::token_holder()]);
        assert_eq!(callers.identify(Some(text.as_bytes())).await.unwrap_err().error, Some(INVALID_TOKEN));
        assert!(callers.identify(Some(other.as_bytes())).await.is_ok());
    }

    fn made_again(text: &str) -> Token {
        let folder = TestFolder::new();
        std::fs::write(token::path(folder.path()), text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(token::path(folder.path()), private).unwrap();
        token::obtain(folder.path()).unwrap().0
    }

    #[tokio::test]
    async fn a_server_that_asks_for_nothing_still_refuses_a_wrong_credential() {
        let callers = Callers::new(Path::new(NOWHERE), None, false, None, Box::new(|_, _, _| {}));
        assert_eq!(callers.identify(None).await.unwrap().caller.principal, Principal::anonymous());
        assert!(callers.identify(Some(b"anything")).await.is_err());
        let long = vec![b'x'; BEARER_BYTES_MAX + 1];
        assert!(callers.identify(Some(&long)).await.unwrap_err().reason.contains("too long"));
        let (token, text) = made();
        let callers = Callers::new(Path::new(NOWHERE), Some(token), false, None, Box::new(|_, _, _| {}));
        assert_eq!(callers.identify(Some(text.as_bytes())).await.unwrap().caller, Caller::token_holder());
        assert_eq!(callers.owner().caller.principal, Principal::anonymous());
    }

    #[tokio::test]
    async fn what_a_replaced_token_got_ends_with_it() {
        let ((first, _), (second, _)) = (made(), made());
        let callers = Callers::new(Path::new(NOWHERE), Some(first), true, None, Box::new(|_, _, _| {}));
        let owner = Principal::token_holder();
        assert!(callers.holder(&owner, 1).await.is_some());
        callers.replace_token(second);
        assert!(callers.holder(&owner, 1).await.is_none(), "it was given to the holder of the old token");
        assert!(callers.holder(&owner, u64::MAX).await.is_some());
    }
}
