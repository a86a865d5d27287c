//! The keys in force, in memory. No request waits for the database.
//!
//! ```text
//! every 250 ms: did the database change? -> read -> table; what was revoked, replaced or has expired ends
//! a request:    id -> table -> secret, in constant time -> state -> caller; not found -> a look that begins after the
//!               request, at most one look in 20 ms
//! ```
//! Every server of a state directory does this on its own, so a revocation reaches all of them within a second. The
//! table answers only while it is fresh. When the keys could not be read for a second, a request reads them first, and
//! without an answer no key counts.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::{
    Caller, Key, KeyDigest, KeyError, KeyId, KeyState, Keys, KeysSeen, NotAKey, Principal, SecretsBefore,
    ShownKey,
};
use tokio_util::sync::CancellationToken;

use super::{Credential, Identified, Telling, Unidentified};
use crate::reload::Replaceable;

/// Interval of looking for changes.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Older knowledge does not decide about a request.
const FRESH: Duration = Duration::from_secs(1);
/// The least time between two looks that unknown keys cause: wrong keys cannot keep the database busy. They wait meanwhile.
const LOOK_AGAIN_MS: u64 = 20;
/// Interval of writing down when keys were used.
const NOTE_PAUSE: Duration = Duration::from_secs(60);
/// A call that began just before the end may start a run just after it, so the end is told again once.
const SECOND_END: Duration = Duration::from_millis(700);

const MISTYPED: &str = "the key is incomplete or mistyped: its last part does not fit the rest";
const UNKNOWN: &str =
    "the key is not valid on this server; the operator makes keys with `palisade keys create`";
const REVOKED: &str = "the key was revoked; ask the operator for another one";
const EXPIRED: &str = "the key has expired; ask the operator for another one";
const ROTATED: &str = "the key got another secret, and the time of the old one is over; use the new one";
const UNREADABLE: &str = "the keys of this server cannot be read just now; try again later";

/// The keys of a state directory, as this server knows them.
pub(super) struct KeyRing {
    keys: Keys,
    table: Replaceable<HashMap<KeyId, Arc<Entry>>>,
    looking: Mutex<Looking>,
    begun: Instant,
    /// When the table was confirmed last, in milliseconds since `begun`; zero before.
    confirmed_ms: AtomicU64,
    is_failing: AtomicBool,
}

/// State of the one who looks.
struct Looking {
    seen: Option<KeysSeen>,
    ended: Vec<Ending>,
    noted: Instant,
}

/// A principal that ended just now.
struct Ending {
    principal: Principal,
    /// The secrets that ended.
    secrets: SecretsBefore,
    since: Instant,
    is_told: bool,
}

struct Entry {
    key: Key,
    caller: Caller,
    /// Cancelled when the key's secret does not count any more.
    ended: CancellationToken,
    /// The same of the secret before the last rotation.
    previous_ended: Option<CancellationToken>,
    used_ms: AtomicU64,
}

impl Entry {
    fn new(key: Key) -> Self {
        let previous_ended = key.previous.map(|_| CancellationToken::new());
        let used_ms = AtomicU64::new(key.used_ms.unwrap_or_default());
        let ended = CancellationToken::new();
        if key.state(unix_ms()) != KeyState::InForce {
            // It was over before this server knew it, so nothing is left to end.
            ended.cancel();
        }
        Self { caller: key.caller(), key, ended, previous_ended, used_ms }
    }

    /// The entry of a key that was read again. What still counts keeps its signal.
    fn after(key: Key, before: &Self) -> Self {
        let mut entry = Self::new(key);
        entry.used_ms.fetch_max(before.used_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        let signal = |digest: KeyDigest| match digest == before.key.digest {
            true => Some(before.ended.clone()),
            false => before
                .previous_ended
                .clone()
                .filter(|_| before.key.previous.is_some_and(|(old, _)| old == digest)),
        };
        entry.ended = signal(entry.key.digest).unwrap_or_default();
        entry.previous_ended = entry.key.previous.map(|(digest, _)| signal(digest).unwrap_or_default());
        entry
    }

    fn in_force(&self, now_ms: u64) -> bool {
        self.key.state(now_ms) == KeyState::InForce
    }

    fn identified(&self, ended: &CancellationToken, until_ms: Option<u64>) -> Identified {
        let until_ms = [until_ms, self.key.expires_ms].into_iter().flatten().min();
        let until = until_ms.map(|until| UNIX_EPOCH + Duration::from_millis(until));
        let credential = Credential::until_cancelled(ended.clone()).until(until);
        Identified { caller: self.caller.clone(), credential }
    }
}

impl KeyRing {
    /// The keys of that state directory, read now. A failure is told when a key is shown.
    pub(super) fn new(state_dir: &Path) -> Self {
        let now = Instant::now();
        Self {
            keys: Keys::new(state_dir),
            table: Replaceable::new(HashMap::new()),
            looking: Mutex::new(Looking { seen: None, ended: Vec::new(), noted: now }),
            begun: now,
            confirmed_ms: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }

    /// The holder of a shown key; `None` if the text is another kind of credential.
    pub(super) async fn identify(
        self: &Arc<Self>,
        shown: &[u8],
        on_end: &Arc<super::OnEnd>,
    ) -> Option<Result<Identified, Unidentified>> {
        let shown = match ShownKey::parse(shown) {
            Ok(shown) => shown,
            Err(NotAKey::Other) => return None,
            Err(NotAKey::Mistyped) => return Some(Err(Unidentified::wrong(MISTYPED))),
        };
        if !self.is_fresh() && !self.look_aside(on_end).await {
            return Some(Err(Unidentified::unavailable(UNREADABLE)));
        }
        let came_ms = self.age_ms();
        let found = self.find(&shown, unix_ms());
        // The key may have been made a moment ago.
        if found.is_err() && self.look_after(came_ms, on_end).await {
            return Some(self.find(&shown, unix_ms()));
        }
        Some(found)
    }

    /// Waits for a look that began after that moment. Says whether the keys could be read.
    async fn look_after(self: &Arc<Self>, came_ms: u64, on_end: &Arc<super::OnEnd>) -> bool {
        let pause_ms = LOOK_AGAIN_MS.saturating_sub(self.confirmed_ago_ms()).max(1);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let (ring, on_end) = (Arc::clone(self), Arc::clone(on_end));
        let look = move || {
            let mut looking = ring.looking.lock().unwrap_or_else(PoisonError::into_inner);
            // One look serves all who waited for it.
            ring.confirmed_ms.load(Ordering::Acquire) > came_ms || ring.look_with(&mut looking, &on_end)
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(false)
    }

    fn find(&self, shown: &ShownKey, now_ms: u64) -> Result<Identified, Unidentified> {
        let table = self.table.get();
        let entry = table.get(&shown.id).ok_or_else(|| Unidentified::wrong(UNKNOWN))?;
        let previous = entry.key.previous.filter(|(digest, _)| *digest == shown.digest);
        let (ended, until_ms) = match (entry.key.digest == shown.digest, previous) {
            (true, _) => (&entry.ended, None),
            (false, Some((_, until_ms))) if until_ms <= now_ms => return Err(Unidentified::wrong(ROTATED)),
            (false, Some((_, until_ms))) => {
                (entry.previous_ended.as_ref().unwrap_or(&entry.ended), Some(until_ms))
            }
            (false, None) => return Err(Unidentified::wrong(UNKNOWN)),
        };
        // Only the holder of the secret learns what became of the key.
        match entry.key.state(now_ms) {
            KeyState::InForce => {}
            KeyState::Revoked => return Err(Unidentified::wrong(REVOKED)),
            KeyState::Expired => return Err(Unidentified::wrong(EXPIRED)),
        }
        entry.used_ms.store(now_ms, Ordering::Relaxed);
        Ok(entry.identified(ended, until_ms))
    }

    /// The holder of a key that is in force, without its secret: for what a secret of the key got at that time. What the
    /// secret before the last rotation got ends with it.
    pub(super) async fn holder(
        self: &Arc<Self>,
        (principal, since_s): (&Principal, u64),
        on_end: &Arc<super::OnEnd>,
    ) -> Option<Identified> {
        if !self.is_fresh() && !self.look_aside(on_end).await {
            return None;
        }
        let table = self.table.get();
        let entry = table.get(&KeyId::parse(principal.key_id()?)?)?;
        let now_ms = unix_ms();
        let is_of_old_secret = entry.key.rotated_ms.is_some_and(|rotated| rotated / 1000 > since_s);
        match (entry.in_force(now_ms), is_of_old_secret, entry.key.previous) {
            (true, false, _) => Some(entry.identified(&entry.ended, None)),
            (true, true, Some((_, until_ms))) if until_ms > now_ms => {
                Some(entry.identified(&entry.ended, Some(until_ms)))
            }
            _ => None,
        }
    }

    fn is_fresh(&self) -> bool {
        let is_confirmed = self.confirmed_ms.load(Ordering::Acquire) != 0;
        is_confirmed && self.confirmed_ago_ms() < FRESH.as_millis() as u64
    }

    fn confirmed_ago_ms(&self) -> u64 {
        self.age_ms().saturating_sub(self.confirmed_ms.load(Ordering::Acquire))
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Looks on a thread that may wait for the disk.
    pub(super) async fn look_aside(self: &Arc<Self>, on_end: &Arc<super::OnEnd>) -> bool {
        let (ring, on_end) = (Arc::clone(self), Arc::clone(on_end));
        tokio::task::spawn_blocking(move || ring.look(&on_end)).await.unwrap_or(false)
    }

    /// Looks for changes, and ends what does not count any more. Says whether the keys could be read.
    pub(super) fn look(&self, on_end: &super::OnEnd) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_with(&mut looking, on_end)
    }

    fn look_with(&self, looking: &mut Looking, on_end: &super::OnEnd) -> bool {
        // A change after this moment is seen the next time.
        let began_ms = self.age_ms().max(1);
        let before = self.table.get();
        match self.keys.read_if_changed(&mut looking.seen) {
            Ok(Some(keys)) => self.table.replace(table(keys, &before)),
            Ok(None) => {}
            Err(error) => {
                self.tell_failure(&error);
                return false;
            }
        }
        self.is_failing.store(false, Ordering::Relaxed);
        self.confirmed_ms.store(began_ms, Ordering::Release);
        end_what_is_over(&before, &self.table.get(), &mut looking.ended);
        looking.ended.retain_mut(|Ending { principal, secrets, since, is_told }| {
            let is_over = since.elapsed() >= SECOND_END;
            if is_over || !*is_told {
                on_end(principal, *secrets, if *is_told { Telling::Again } else { Telling::First });
            }
            *is_told = true;
            !is_over
        });
        if looking.noted.elapsed() >= NOTE_PAUSE {
            looking.noted = Instant::now();
            self.note_used();
        }
        true
    }

    fn tell_failure(&self, error: &KeyError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::error!(reason = %error, "keys_unreadable");
        }
    }

    /// Writes down when keys were used last.
    pub(super) fn note_used(&self) {
        let used: Vec<_> = self
            .table
            .get()
            .values()
            .map(|entry| (entry, entry.used_ms.load(Ordering::Relaxed)))
            .filter(|(entry, used_ms)| *used_ms > entry.key.used_ms.unwrap_or_default())
            .map(|(entry, used_ms)| (entry.key.id.clone(), used_ms))
            .collect();
        if let Err(error) = self.keys.note_used(&used) {
            self.tell_failure(&error);
        }
    }
}

fn table(keys: Vec<Key>, before: &HashMap<KeyId, Arc<Entry>>) -> HashMap<KeyId, Arc<Entry>> {
    let entry = |key: Key| match before.get(&key.id) {
        Some(before) => Entry::after(key, before),
        None => Entry::new(key),
    };
    keys.into_iter().map(|key| (key.id.clone(), Arc::new(entry(key)))).collect()
}

/// Cancels what counted before and does not now. The principals of keys that ended, or whose secret was replaced
/// without an overlap, are added to the list.
fn end_what_is_over(
    before: &HashMap<KeyId, Arc<Entry>>,
    now: &HashMap<KeyId, Arc<Entry>>,
    ended: &mut Vec<Ending>,
) {
    let now_ms = unix_ms();
    for (id, old) in before {
        let new = now.get(id).filter(|new| new.in_force(now_ms));
        let keeps = |digest: KeyDigest| {
            new.is_some_and(|new| {
                let overlaps = |(old, until_ms): (KeyDigest, u64)| old == digest && until_ms > now_ms;
                new.key.digest == digest || new.key.previous.is_some_and(overlaps)
            })
        };
        if let (Some((digest, _)), Some(signal)) = (old.key.previous, &old.previous_ended)
            && !keeps(digest)
        {
            signal.cancel();
        }
        if !old.ended.is_cancelled() && !keeps(old.key.digest) {
            old.ended.cancel();
            tracing::info!(principal = %old.caller.principal, label = %old.caller, "key_ended");
            let principal = old.caller.principal.clone();
            // What the new secret of a rotated key begins goes on.
            let secrets =
                new.and_then(|new| new.key.rotated_ms).map_or(SecretsBefore::ALL, SecretsBefore::rotation);
            ended.push(Ending { principal, secrets, since: Instant::now(), is_told: false });
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
