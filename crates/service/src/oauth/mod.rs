//! An OAuth 2.1 resource server: accepts access tokens of the issuers in the settings (RFC 9068, RFC 6750), and tells
//! clients where to get one (RFC 9728).
//!
//! ```text
//! token -> form, header (jws) -> issuer known? -> terms, caller (claims) -> key (issuer_keys) -> signature -> caller
//! ```
//! No token is passed on, stored or logged. A token is a JWT; this server asks no issuer about a single token, so a
//! token counts until it expires or its key is removed.

mod address;
mod challenge;
mod claims;
mod fetch;
mod holders;
mod issuer_keys;
mod jws;
mod key_set;
mod metadata;
mod object;
mod provider;
mod refused;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::{Caller, Principal};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation};
use serde::de::IgnoredAny;
use serde_json::Value;

use self::fetch::Fetcher;
use self::holders::Holders;
use self::issuer_keys::IssuerKeys;
use self::jws::Unverified;
use self::key_set::KeyChoice;

pub use self::address::{Issuer, Resource};
pub(crate) use self::challenge::ScopeChallenge;
pub(crate) use self::metadata::{is_metadata, routes};
pub(crate) use self::refused::TokenRefused;

/// The settings of OAuth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthOptions {
    /// Whose tokens are accepted.
    pub issuers: Vec<Issuer>,
    /// The audience of the tokens.
    pub resource: Resource,
    /// Certificates of authorities that are trusted instead of this machine's, PEM.
    pub ca_file: Option<PathBuf>,
}

/// A token that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The holder.
    pub(crate) caller: Caller,
    /// When the token stops to count; the leeway is in it.
    pub(crate) expires: SystemTime,
}

/// The resource server.
pub(crate) struct Oauth {
    issuers: Vec<Arc<IssuerKeys>>,
    resource: Resource,
    /// The address of the metadata, for challenges.
    metadata: Arc<str>,
    holders: Holders,
}

impl Oauth {
    /// Starts to read the keys of the issuers. An issuer that cannot be reached does not keep the server from starting.
    pub(crate) fn start(options: &OauthOptions) -> io::Result<Self> {
        provider::install();
        let fetcher = Arc::new(Fetcher::new(options.ca_file.as_deref())?);
        let issuers = options.issuers.iter();
        let issuers = issuers.map(|issuer| IssuerKeys::start(issuer.clone(), Arc::clone(&fetcher))).collect();
        let metadata = options.resource.metadata().into();
        Ok(Self { issuers, resource: options.resource.clone(), metadata, holders: Holders::default() })
    }

    /// The holder of a token.
    pub(crate) async fn check(&self, token: &str) -> Result<Accepted, TokenRefused> {
        let unverified = jws::read(token)?;
        let named = unverified.claims.get("iss").and_then(Value::as_str).ok_or(TokenRefused::Issuer)?;
        let issuer = self.issuers.iter().find(|keys| keys.issuer.as_str() == named);
        let issuer = issuer.ok_or(TokenRefused::Issuer)?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let expires_s = claims::check_terms(&unverified.claims, &self.resource, now_s)?;
        let caller = claims::caller(&unverified.claims, &issuer.issuer)?;
        self.verify(token, &unverified, issuer).await?;
        // A time that the clock cannot hold is never.
        let expires =
            UNIX_EPOCH.checked_add(Duration::from_secs(expires_s)).unwrap_or(SystemTime::now() + FOREVER);
        let accepted = Accepted { caller, expires };
        self.holders.learn(&accepted);
        Ok(accepted)
    }

    /// The holder of a token that was accepted before and still counts, for what shows no token.
    pub(crate) fn holder(&self, principal: &Principal) -> Option<Accepted> {
        self.holders.get(principal, SystemTime::now())
    }

    /// The challenge to a request without a caller. `refused` says why what it showed does not count.
    pub(crate) fn challenge(&self, refused: Option<&str>) -> String {
        challenge::unidentified(&self.metadata, refused)
    }

    /// What refuses the calls of this caller that need more scopes; `None` for a caller that showed no access token.
    pub(crate) fn scope_challenge(&self, caller: &Caller) -> Option<ScopeChallenge> {
        let is_ours = caller.principal.as_str().starts_with(PRINCIPAL_PREFIX);
        is_ours.then(|| ScopeChallenge::new(caller, Arc::clone(&self.metadata)))
    }

    /// Checks the signature. An unknown key is looked for once more at the issuer.
    async fn verify(
        &self,
        token: &str,
        unverified: &Unverified,
        issuer: &Arc<IssuerKeys>,
    ) -> Result<(), TokenRefused> {
        let key_id = unverified.key_id.as_deref();
        let judge = |keys: &key_set::KeySet| match keys.find(key_id, unverified.algorithm) {
            KeyChoice::Key(key) => self.check_signature(token, unverified, key, &issuer.issuer),
            KeyChoice::Unfit => Err(TokenRefused::KeyMismatch),
            KeyChoice::Unknown => Err(TokenRefused::UnknownKey),
        };
        let first = issuer.keys().map(|keys| judge(&keys));
        match first {
            Some(Err(TokenRefused::UnknownKey)) | None => {}
            // Without an id, the key in force may be the one before the issuer's last change.
            Some(Err(TokenRefused::Signature)) if key_id.is_none() => {}
            Some(judged) => return judged,
        }
        match issuer.refreshed().await {
            Some(keys) => judge(&keys),
            None => Err(TokenRefused::IssuerUnavailable),
        }
    }

    /// The library judges the signature, and issuer and audience once more.
    fn check_signature(
        &self,
        token: &str,
        unverified: &Unverified,
        key: &DecodingKey,
        issuer: &Issuer,
    ) -> Result<(), TokenRefused> {
        let mut validation = Validation::new(unverified.algorithm);
        validation.set_required_spec_claims(&["iss", "aud", "sub"]);
        validation.set_issuer(&[issuer.as_str()]);
        validation.set_audience(&[self.resource.as_str()]);
        // Checked before, with fractions, which the library does not read with this program's features of serde_json.
        validation.validate_exp = false;
        match jsonwebtoken::decode::<IgnoredAny>(token, key, &validation) {
            Ok(_) => Ok(()),
            Err(error) => Err(match error.kind() {
                ErrorKind::InvalidSignature => TokenRefused::Signature,
                ErrorKind::InvalidKeyFormat | ErrorKind::UnsupportedAlgorithm => TokenRefused::KeyMismatch,
                ErrorKind::InvalidIssuer => TokenRefused::Issuer,
                ErrorKind::InvalidAudience => TokenRefused::Audience,
                _ => TokenRefused::Malformed,
            }),
        }
    }
}

/// Whether a bearer has the form of an access token. Keys and tokens of this server have no dots.
pub(crate) fn is_access_token(bearer: &[u8]) -> bool {
    bearer.contains(&b'.')
}

/// The beginning of the principal of every OAuth caller.
const PRINCIPAL_PREFIX: &str = "oauth:";
/// Longer than a server runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
