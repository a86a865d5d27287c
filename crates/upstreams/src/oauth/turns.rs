//! Refreshes of tokens: one at a time for each credential, in this process and among processes.
//!
//! A token endpoint may be slow or broken, and every call asks for a token. So the calls of a credential wait for one
//! refresh together, a refresh that failed is not repeated for a while, and no thread waits for another process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::Principal;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::sync::watch;

use super::Credential;

/// How long a token whose refresh failed is not refreshed again.
const FAILURE_MEMORY: Duration = Duration::from_secs(30);
/// How long another process may take for its refresh: longer than a token endpoint may.
const TURN_PATIENCE: Duration = Duration::from_secs(25);
const TURN_PAUSE: Duration = Duration::from_millis(50);
/// Beyond, the turns of credentials that nothing uses are dropped.
const TURNS_MAX: usize = 1024;

/// The token that a refresh gave; `None` until it is over.
type Refreshed = Option<Option<String>>;

/// Who refreshes what in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct RefreshBook(Arc<Mutex<ByCredential>>);

/// By server and principal.
type ByCredential = HashMap<(String, Principal), Arc<CredentialRefresh>>;

/// The refreshes of one credential.
#[derive(Debug, Default)]
pub(super) struct CredentialRefresh(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Option<watch::Receiver<Refreshed>>,
    /// The token whose refresh failed last.
    failed: Option<(String, Instant)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RefreshBook {
    /// The turns of a credential, which all connections with it share.
    pub(super) fn of(&self, server: &str, principal: &Principal) -> Arc<CredentialRefresh> {
        let mut turns = locked(&self.0);
        if turns.len() >= TURNS_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        Arc::clone(turns.entry((server.to_owned(), principal.clone())).or_default())
    }
}

impl Credential {
    /// Another token in the place of one that was refused or ends; `None` if there is none.
    pub(crate) async fn refreshed(self: &Arc<Self>, refused: &str) -> Option<String> {
        let mut running = self.refreshing(refused)?;
        let token = running.wait_for(Option::is_some).await.ok()?;
        token.clone()?
    }

    /// The refresh that runs, or a new one; `None` if it failed a moment ago.
    fn refreshing(self: &Arc<Self>, refused: &str) -> Option<watch::Receiver<Refreshed>> {
        let mut state = locked(&self.turn.0);
        // A task that was dropped with its runtime tells nothing any more.
        let running = state.running.as_ref().filter(|running| running.has_changed().is_ok());
        if let Some(running) = running {
            return Some(running.clone());
        }
        let has_failed = |(token, at): &(String, Instant)| token == refused && at.elapsed() < FAILURE_MEMORY;
        if state.failed.as_ref().is_some_and(has_failed) {
            return None;
        }
        let (tell, told) = watch::channel(None);
        state.running = Some(told.clone());
        let (credential, refused) = (Arc::clone(self), refused.to_owned());
        // A task of its own, which goes on when the caller gives up: a refresh token that was sent is used up, and without
        // the one that comes for it the login is lost.
        tokio::spawn(async move {
            let token = credential.exchanged(&refused).await;
            let mut state = locked(&credential.turn.0);
            state.failed = token.is_none().then(|| (refused, Instant::now()));
            state.running = None;
            tell.send_replace(Some(token));
        });
        Some(told)
    }
}

/// Held while another process must not refresh the same tokens: a refresh token is used once.
pub(super) struct FileTurn {
    _lock: File,
}

/// Waits for the turn among processes, without a thread.
pub(super) async fn file_turn(path: &Path) -> io::Result<FileTurn> {
    let lock = super::tokens::private(path)?;
    let until = Instant::now() + TURN_PATIENCE;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(FileTurn { _lock: lock }),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                tokio::time::sleep(TURN_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
