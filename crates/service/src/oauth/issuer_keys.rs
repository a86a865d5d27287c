//! The keys of one issuer over time.
//!
//! ```text
//! start, then every 10 minutes -> metadata -> jwks_uri -> keys in force
//!                                 failed   -> the old keys stay for 24 hours; again after 30 s
//! a token names an unknown key -> fetched at once, if the last attempt is 30 s ago; all who wait share one fetch
//! ```
//! A token whose key is known never waits. A key that the issuer removes is out of force within ten minutes.

use std::io;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use http::Uri;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::address::{Issuer, is_loopback};
use super::fetch::Fetcher;
use super::key_set::KeySet;

/// How old keys get before they are read again.
pub(super) const FRESH: Duration = Duration::from_secs(10 * 60);
/// The shortest time between two attempts.
pub(super) const PAUSE: Duration = Duration::from_secs(30);
/// Maximum time of an attempt, over all documents.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long keys stay in force while the issuer cannot be reached.
pub(super) const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// An issuer and its keys.
pub(super) struct IssuerKeys {
    pub(super) issuer: Issuer,
    fetcher: Arc<Fetcher>,
    state: RwLock<State>,
    /// Held while a fetch is under way.
    flight: Mutex<()>,
}

#[derive(Default)]
struct State {
    keys: Option<(Arc<KeySet>, Instant)>,
    tried: Option<Instant>,
}

impl IssuerKeys {
    /// The issuer, whose keys are read from now on as long as the value lives.
    pub(super) fn start(issuer: Issuer, fetcher: Arc<Fetcher>) -> Arc<Self> {
        let keys = Arc::new(Self { issuer, fetcher, state: RwLock::default(), flight: Mutex::default() });
        tokio::spawn(keep_fresh(Arc::downgrade(&keys)));
        keys
    }

    /// The keys in force.
    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.keys.as_ref().filter(|(_, fetched)| fetched.elapsed() < KEPT).map(|(keys, _)| Arc::clone(keys))
    }

    /// The keys after a new attempt, unless one was made a moment ago. The attempt goes on when the caller leaves, so
    /// that callers who disconnect cannot keep others from new keys.
    pub(super) async fn refreshed(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let own = Arc::clone(self);
        // The task cannot panic; if it is cancelled, the program ends.
        tokio::spawn(async move { own.refresh().await }).await.ok();
        self.keys()
    }

    async fn refresh(&self) {
        let _flight = self.flight.lock().await;
        if self.tried().is_some_and(|tried| tried.elapsed() < PAUSE) {
            return;
        }
        let read = tokio::time::timeout(PATIENCE, self.fetch())
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("not read within {} s", PATIENCE.as_secs()))));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.tried = Some(now);
        match read {
            Ok(keys) => {
                tracing::debug!(issuer = %self.issuer, keys = keys.len(), "issuer_keys_read");
                state.keys = Some((Arc::new(keys), now));
            }
            Err(error) => tracing::warn!(issuer = %self.issuer, reason = %error, "issuer_keys_unread"),
        }
    }

    fn tried(&self) -> Option<Instant> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).tried
    }

    async fn fetch(&self) -> io::Result<KeySet> {
        let uri = self.jwks_uri().await?;
        let document =
            self.fetcher.object(&uri).await.map_err(|error| io::Error::other(format!("{uri}: {error}")))?;
        KeySet::read(&document).map_err(|reason| io::Error::other(format!("{uri}: {reason}")))
    }

    /// The address of the keys, from the first metadata that names this very issuer (RFC 8414, section 3.3).
    async fn jwks_uri(&self) -> io::Result<Uri> {
        let mut last = io::Error::other("the issuer has no metadata");
        for at in self.issuer.metadata() {
            let document = match self.fetcher.object(&at).await {
                Ok(document) => document,
                Err(error) => {
                    last = io::Error::other(format!("{at}: {error}"));
                    continue;
                }
            };
            if document.get("issuer").and_then(Value::as_str) != Some(self.issuer.as_str()) {
                last = io::Error::other(format!("{at}: it is the metadata of another issuer"));
                continue;
            }
            let uri =
                document.get("jwks_uri").and_then(Value::as_str).and_then(|text| text.parse::<Uri>().ok());
            return uri
                .filter(|uri| may_have_keys(&self.issuer, uri))
                .ok_or_else(|| io::Error::other(format!("{at}: `jwks_uri` must be a URL with https")));
        }
        Err(last)
    }
}

/// Whether the keys of an issuer may be at this address.
fn may_have_keys(issuer: &Issuer, uri: &Uri) -> bool {
    match uri.scheme_str() {
        Some("https") => true,
        // An issuer elsewhere must not make this server call others on this machine.
        Some("http") => issuer.is_plain() && is_loopback(uri),
        _ => false,
    }
}

/// Reads the keys again before they get old.
async fn keep_fresh(keys: Weak<IssuerKeys>) {
    loop {
        let Some(issuer) = keys.upgrade() else { return };
        let fetched = || {
            let state = issuer.state.read().unwrap_or_else(PoisonError::into_inner);
            state.keys.as_ref().map(|(_, fetched)| fetched.elapsed())
        };
        if fetched().is_none_or(|age| age >= FRESH) {
            issuer.refresh().await;
        }
        let pause = fetched().map_or(PAUSE, |age| FRESH.saturating_sub(age).max(PAUSE));
        drop(issuer);
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_elsewhere_cannot_send_this_server_to_its_own_machine() {
        let may = |issuer: &str, uri: &str| may_have_keys(&issuer.parse().unwrap(), &uri.parse().unwrap());
        let (elsewhere, here) = ("https://login.example.com", "http://127.0.0.1:9000");
        assert!(may(elsewhere, "https://keys.example.com/jwks"));
        assert!(!may(elsewhere, "http://127.0.0.1:8808/metrics"));
        assert!(!may(elsewhere, "http://keys.example.com/jwks"));
        assert!(may(here, "http://127.0.0.1:9001/jwks"));
        assert!(!may(here, "http://192.0.2.1/jwks"));
    }
}
