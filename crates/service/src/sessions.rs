//! Ownership and number of sessions, for clients of the era with sessions.
//!
//! The library issues session ids and accepts every caller that shows one. This module binds each id to the
//! principal that opened the session. For another principal it replaces the id with one that does not exist,
//! so the request gets the same answer as for a wrong id. The end of a session ends its runs.
//!
//! The library holds about 60 kB for a session, and many clients leave without closing theirs. A session is *idle*
//! while it has neither a request in progress nor an open stream. Idle sessions are bounded in number and time. When
//! there are too many, the principal with the most sessions loses the one that is idle longest, so a caller that opens
//! many sessions closes its own.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use engine::{Caller, Principal, SecretsBefore};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use mcp::SessionEnd;

/// The header with the session id.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Maximum number of sessions, and how many of them may be idle.
const SESSIONS_MAX: usize = 1024;
const IDLE_MAX: usize = 256;
/// Maximum number of sessions of one principal: others find room beside it.
const OWN_MAX: usize = SESSIONS_MAX / 4 * 3;
/// An idle session is closed after this time, or after the time of the longest run if that is longer: the run of a
/// client that disconnected goes on.
const IDLE_EXPIRY: Duration = Duration::from_secs(15 * 60);
/// The same for a session that was opened and hardly used.
const UNUSED_EXPIRY: Duration = Duration::from_secs(5 * 60);
/// The greeting of a client: the notification that it is initialized.
const GREETING_REQUESTS: usize = 1;
/// Interval of looking for sessions to close.
pub(crate) const UPKEEP_PAUSE: Duration = Duration::from_secs(20);
/// The library closes a session after this much silence. It counts a call without output as silence, so the time
/// is longer than any run may take.
const SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
const NOBODYS: &str = "none";

/// All sessions.
pub(crate) struct Sessions {
    pub(crate) local: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, Owner>>,
    idle_expiry: Duration,
    sessions_max: usize,
    own_max: usize,
    idle_max: usize,
}

struct Owner {
    principal: Principal,
    secret_ms: u64,
    session_end: SessionEnd,
    activity: Arc<Activity>,
}

/// The use of a session.
struct Activity {
    /// Requests in progress and open streams.
    in_progress: AtomicUsize,
    /// All requests so far.
    requests: AtomicUsize,
    last_used: Mutex<Instant>,
}

impl Activity {
    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.in_progress.load(Ordering::Acquire) == 0;
        is_idle.then(|| *self.last_used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_expired(&self, now: Instant, idle_expiry: Duration) -> bool {
        let is_hardly_used = self.requests.load(Ordering::Relaxed) <= GREETING_REQUESTS;
        let expiry = if is_hardly_used { UNUSED_EXPIRY } else { idle_expiry };
        self.idle_since().is_some_and(|since| now.saturating_duration_since(since) >= expiry)
    }
}

/// A request of a session in progress. The session is not idle while any of these exists.
pub(crate) struct InUse {
    pub(crate) session_end: SessionEnd,
    activity: Arc<Activity>,
}

impl InUse {
    fn begin(owner: &Owner) -> Self {
        owner.activity.in_progress.fetch_add(1, Ordering::AcqRel);
        owner.activity.requests.fetch_add(1, Ordering::Relaxed);
        Self { session_end: owner.session_end.clone(), activity: Arc::clone(&owner.activity) }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.activity.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.activity.in_progress.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Sessions {
    pub(crate) fn new(longest_run: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SILENCE_MAX.max(longest_run * 2));
        let idle_expiry = IDLE_EXPIRY.max(longest_run + UNUSED_EXPIRY);
        Self {
            local: Arc::new(local),
            owners: Mutex::default(),
            idle_expiry,
            sessions_max: SESSIONS_MAX,
            own_max: OWN_MAX,
            idle_max: IDLE_MAX,
        }
    }

    /// Replaces an id that does not belong to this principal. Returns the request's use of the session if it
    /// does.
    pub(crate) fn check(&self, headers: &mut HeaderMap, principal: &Principal) -> Option<InUse> {
        let shown = headers.get(&HEADER)?;
        let owners = self.lock();
        let owner = shown.to_str().ok().and_then(|id| owners.get(id));
        if let Some(owner) = owner.filter(|owner| owner.principal == *principal) {
            return Some(InUse::begin(owner));
        }
        headers.insert(&HEADER, HeaderValue::from_static(NOBODYS));
        None
    }

    /// Records the owner of a session that an answer has opened. Closes others if there are too many.
    pub(crate) async fn learn(&self, headers: &HeaderMap, caller: &Caller) {
        let Some(id) = headers.get(&HEADER).and_then(|value| value.to_str().ok()) else { return };
        if self.lock().contains_key(id) {
            return;
        }
        self.forget_ended().await;
        let activity = Activity {
            in_progress: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        };
        let owner = Owner {
            principal: caller.principal.clone(),
            secret_ms: caller.secret_ms,
            session_end: SessionEnd::default(),
            activity: Arc::new(activity),
        };
        self.lock().insert(id.to_owned(), owner);
        while let Some(surplus) = self.surplus() {
            self.close(surplus).await;
        }
    }

    /// Closes the sessions that are idle for too long.
    pub(crate) async fn expire(&self, now: Instant) {
        let is_expired = |owner: &Owner| owner.activity.is_expired(now, self.idle_expiry);
        let expired: Vec<String> = {
            let owners = self.lock();
            owners.iter().filter(|(_, owner)| is_expired(owner)).map(|(id, _)| id.clone()).collect()
        };
        for id in expired {
            self.close(id).await;
        }
    }

    /// Closes the sessions of a principal whose credential has ended, as far as they showed one of these secrets.
    pub(crate) async fn close_of(&self, principal: &Principal, secrets: SecretsBefore) {
        let own: Vec<String> = {
            let owners = self.lock();
            owners
                .iter()
                .filter(|(_, owner)| owner.principal == *principal && secrets.covers(owner.secret_ms))
                .map(|(id, _)| id.clone())
                .collect()
        };
        for id in own {
            self.close(id).await;
        }
    }

    async fn close(&self, id: String) {
        let removed = self.lock().remove(&id);
        if let Some(owner) = removed {
            owner.session_end.say();
        }
        // The session may already be closed.
        self.local.close_session(&id.into()).await.ok();
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

    /// The session to close: of the principal with the most sessions, the one that is idle longest. A new session is
    /// idle, so it is closed itself if all others of its principal are in use.
    fn surplus(&self) -> Option<String> {
        let owners = self.lock();
        let mut counts: HashMap<&Principal, usize> = HashMap::new();
        for owner in owners.values() {
            *counts.entry(&owner.principal).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let idle = owners.iter().filter_map(|(id, owner)| Some((owner, owner.activity.idle_since()?, id)));
        let is_within = owners.len() <= self.sessions_max && most <= self.own_max;
        if is_within && idle.clone().count() <= self.idle_max {
            return None;
        }
        let held = |owner: &Owner| counts.get(&owner.principal).copied().unwrap_or(0);
        let first = idle.min_by_key(|(owner, since, _)| (Reverse(held(owner)), *since));
        first.map(|(_, _, id)| id.clone())
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
        sessions.learn(&headers, &Caller::owner(principal.clone())).await;
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

    /// Room for a few sessions only, because each holds much memory.
    fn few() -> Sessions {
        Sessions { sessions_max: 12, own_max: 8, idle_max: 4, ..Sessions::new(Duration::from_secs(1)) }
    }

    #[tokio::test]
    async fn the_longest_idle_session_makes_room_and_one_in_use_stays() {
        let sessions = few();
        let owner = Principal::token_holder();
        let (mut used, mut first) = (open(&sessions, &owner).await, open(&sessions, &owner).await);
        let in_use = sessions.check(&mut used, &owner).unwrap();
        for _ in 0..sessions.idle_max {
            open(&sessions, &owner).await;
        }
        assert_eq!(sessions.count(), sessions.idle_max + 1);
        assert_eq!(sessions.local.sessions.read().await.len(), sessions.idle_max + 1);
        assert!(sessions.check(&mut first, &owner).is_none());
        assert_eq!(first[HEADER], NOBODYS);
        drop(in_use);
        assert!(sessions.check(&mut used, &owner).is_some());
    }

    #[tokio::test]
    async fn sessions_in_use_are_bounded_and_none_is_closed_for_a_new_one() {
        let sessions = few();
        let owner = Principal::token_holder();
        let mut held = Vec::new();
        for _ in 0..sessions.own_max {
            let mut headers = open(&sessions, &owner).await;
            held.extend(sessions.check(&mut headers, &owner));
        }
        let mut surplus = open(&sessions, &owner).await;
        assert_eq!((sessions.count(), held.len()), (sessions.own_max, sessions.own_max));
        assert!(sessions.check(&mut surplus, &owner).is_none());
    }

    #[tokio::test]
    async fn a_caller_with_many_sessions_closes_its_own_and_none_of_another() {
        let sessions = few();
        let (greedy, other) = (Principal::anonymous(), Principal::token_holder());
        let mut kept = open(&sessions, &other).await;
        for _ in 0..20 {
            open(&sessions, &greedy).await;
        }
        assert!(sessions.check(&mut kept, &other).is_some(), "an idle session of another caller was closed");

        // The same with sessions that are in use: they leave room for others.
        let mut held = Vec::new();
        for _ in 0..20 {
            let mut headers = open(&sessions, &greedy).await;
            held.extend(sessions.check(&mut headers, &greedy));
        }
        assert!(held.len() <= sessions.own_max, "{}", held.len());
        let mut late = open(&sessions, &other).await;
        assert!(sessions.check(&mut late, &other).is_some(), "no room for another caller");
    }

    #[tokio::test]
    async fn idle_sessions_expire_and_unused_ones_sooner() {
        let sessions = Sessions::new(Duration::from_secs(1));
        let owner = Principal::token_holder();
        let (_unused, mut used, mut busy) =
            (open(&sessions, &owner).await, open(&sessions, &owner).await, open(&sessions, &owner).await);
        for _ in 0..3 {
            drop(sessions.check(&mut used, &owner));
        }
        let in_use = sessions.check(&mut busy, &owner);
        sessions.expire(Instant::now()).await;
        assert_eq!(sessions.count(), 3);
        sessions.expire(Instant::now() + UNUSED_EXPIRY).await;
        assert_eq!(sessions.count(), 2);
        sessions.expire(Instant::now() + IDLE_EXPIRY).await;
        assert_eq!(sessions.count(), 1, "a session with a request in progress expired");
        drop(in_use);
        sessions.expire(Instant::now() + IDLE_EXPIRY).await;
        assert_eq!((sessions.count(), sessions.local.sessions.read().await.len()), (0, 0));
    }
}
