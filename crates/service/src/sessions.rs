//! Ownership of sessions, for clients of the era with sessions.
//!
//! The library issues session ids and accepts every caller that shows one. This module binds each id to the
//! principal that opened the session. For another principal it replaces the id with one that does not exist,
//! so the request gets the same answer as for a wrong id. The number of sessions is bounded: the session
//! that was silent longest is closed first. The end of a session ends its runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use engine::Principal;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use mcp::SessionEnd;

/// The header with the session id.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const SESSIONS_MAX: usize = 1024;
/// A session is closed after this much silence. A call without output counts as silence, so the time is
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
    session_end: SessionEnd,
}

impl Sessions {
    pub(crate) fn new(longest_run: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SILENCE_MAX.max(longest_run * 2));
        Self { local: Arc::new(local), owners: Mutex::default() }
    }

    /// Replaces an id that does not belong to this principal. Returns the session's end signal if it does.
    pub(crate) fn check(&self, headers: &mut HeaderMap, principal: &Principal) -> Option<SessionEnd> {
        let shown = headers.get(&HEADER)?;
        let mut owners = self.lock();
        let owner = shown.to_str().ok().and_then(|id| owners.get_mut(id));
        if let Some(owner) = owner.filter(|owner| owner.principal == *principal) {
            owner.last_used = Instant::now();
            return Some(owner.session_end.clone());
        }
        headers.insert(&HEADER, HeaderValue::from_static(NOBODYS));
        None
    }

    /// Records the owner of a session that an answer has opened. Closes another session if there are too
    /// many.
    pub(crate) async fn learn(&self, headers: &HeaderMap, principal: &Principal) {
        let Some(id) = headers.get(&HEADER).and_then(|value| value.to_str().ok()) else { return };
        if self.lock().contains_key(id) {
            return;
        }
        self.forget_ended().await;
        let owner = Owner {
            principal: principal.clone(),
            last_used: Instant::now(),
            session_end: SessionEnd::default(),
        };
        self.lock().insert(id.to_owned(), owner);
        while let Some(surplus) = self.surplus() {
            if let Some(owner) = self.lock().remove(&surplus) {
                owner.session_end.say();
            }
            // The session may already be closed.
            self.local.close_session(&surplus.into()).await.ok();
        }
    }

    /// Number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    async fn forget_ended(&self) {
        let living = self.local.sessions.read().await;
        self.lock().retain(|id, owner| {
            let is_living = living.contains_key(id.as_str());
            if !is_living {
                owner.session_end.say();
            }
            is_living
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn open(sessions: &Sessions, principal: &Principal) -> HeaderMap {
        let (id, _transport) = sessions.local.create_session().await.unwrap();
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(&id).unwrap())]);
        sessions.learn(&headers, principal).await;
        headers
    }

    #[tokio::test]
    async fn a_session_of_somebody_else_is_a_session_that_never_was() {
        let sessions = Sessions::new(Duration::from_secs(1));
        let (owner, other) = (Principal::token_holder(), Principal::anonymous());
        let shown = open(&sessions, &owner).await;
        let checked = |headers: &HeaderMap, principal: &Principal| {
            let mut headers = headers.clone();
            sessions.check(&mut headers, principal);
            headers
        };
        assert_eq!(checked(&shown, &owner), shown);
        assert_eq!(checked(&shown, &other)[HEADER], NOBODYS);
        let unknown = HeaderMap::from_iter([(HEADER, HeaderValue::from_static("guessed"))]);
        assert_eq!(checked(&unknown, &owner)[HEADER], NOBODYS);
        assert!(checked(&HeaderMap::new(), &owner).is_empty());
    }

    #[tokio::test]
    async fn the_longest_silent_session_makes_room() {
        let sessions = Sessions::new(Duration::from_secs(1));
        let owner = Principal::token_holder();
        let mut first = open(&sessions, &owner).await;
        for _ in 0..SESSIONS_MAX {
            open(&sessions, &owner).await;
        }
        assert_eq!(sessions.count(), SESSIONS_MAX);
        assert_eq!(sessions.local.sessions.read().await.len(), SESSIONS_MAX);
        sessions.check(&mut first, &owner);
        assert_eq!(first[HEADER], NOBODYS);
    }
}
