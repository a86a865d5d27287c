//! Whose session is whose, for clients of the era with sessions.
//!
//! The library gives out session ids and takes whoever shows one for its owner. Here every id belongs to the
//! principal that opened it: for anybody else the request goes on with an id that exists nowhere, and so gets
//! the very answer of a wrong one. Their number is bounded; whoever was silent longest is closed first, and the
//! end of a session ends its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use engine::Principal;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

/// Carries the id.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const SESSIONS_MAX: usize = 1024;
/// A session is closed after so much silence. It counts a call that runs without news as silence, so it is
/// longer than any run may take.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
const NOBODYS: &str = "none";

/// All sessions.
pub(crate) struct Sessions {
    pub(crate) local: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, Owner>>,
}

struct Owner {
    principal: Principal,
    last_used: Instant,
}

impl Sessions {
    pub(crate) fn new(longest_run: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SILENCE_MAX.max(longest_run * 2));
        Self { local: Arc::new(local), owners: Mutex::default() }
    }

    /// Takes away an id that is not this principal's.
    pub(crate) fn check(&self, headers: &mut HeaderMap, principal: &Principal) {
        let Some(shown) = headers.get(&HEADER) else { return };
        let mut owners = self.lock();
        let owner = shown.to_str().ok().and_then(|id| owners.get_mut(id));
        match owner.filter(|owner| owner.principal == *principal) {
            Some(owner) => owner.last_used = Instant::now(),
            None => drop(headers.insert(&HEADER, HeaderValue::from_static(NOBODYS))),
        }
    }

    /// Notes whose session an answer has opened; closes another one if there are too many.
    pub(crate) async fn learn(&self, headers: &HeaderMap, principal: &Principal) {
        let Some(id) = headers.get(&HEADER).and_then(|value| value.to_str().ok()) else { return };
        if self.lock().contains_key(id) {
            return;
        }
        self.forget_ended().await;
        let owner = Owner { principal: principal.clone(), last_used: Instant::now() };
        self.lock().insert(id.to_owned(), owner);
        while let Some(surplus) = self.surplus() {
            self.lock().remove(&surplus);
            // One that is gone already is as good as closed.
            self.local.close_session(&surplus.into()).await.ok();
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    async fn forget_ended(&self) {
        let living = self.local.sessions.read().await;
        self.lock().retain(|id, _| living.contains_key(id.as_str()));
    }

    fn surplus(&self) -> Option<String> {
        let owners = self.lock();
        if owners.len() <= SESSIONS_MAX {
            return None;
        }
        owners.iter().min_by_key(|(_, owner)| owner.last_used).map(|(id, _)| id.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
