//! Limits how many sandboxes end at once.
//!
//! When the last process of a sandbox ends, the kernel frees its compiled system-call filter, through work
//! items of a queue that the whole kernel shares. Thousands of socket filters freed at once deadlocked
//! kernels 6.18 and 7.2 there. It seems that the item that holds the allocator's lock waits for another item
//! of the same queue. 4,096 system-call filters freed at once stopped none of the tested kernels
//! (docs/TESTING.md); the pacing keeps a distance from that.
//!
//! Sandboxes therefore end in turns. While the server lives, it kills at most [`ENDS_AT_ONCE`] at a time.
//! When it is gone, each sandbox waits its own time (`JailPlan::linger_ms`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ::sandbox::Failures;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Far below 256, the smallest number of items that such a queue processes at once. Far above the number of
/// sandboxes that the processors can tear down at once.
const ENDS_AT_ONCE: u32 = 32;
/// How long that many sandboxes need to end on a busy machine.
const LINGER_STEP_MS: u32 = 32;

/// Shared by all sandboxes of one server.
#[derive(Debug)]
pub(crate) struct Deaths {
    turns: Arc<Semaphore>,
    alive: AtomicU32,
    /// Where a sandbox that cannot be destroyed is reported.
    failures: Arc<Failures>,
}

impl Deaths {
    pub(super) fn new(failures: &Arc<Failures>) -> Self {
        let turns = Arc::new(Semaphore::new(ENDS_AT_ONCE as usize));
        Self { turns, alive: AtomicU32::new(0), failures: Arc::clone(failures) }
    }

    /// How long the next sandbox stays when the server is gone, after those that live now.
    pub(crate) fn linger_ms(&self) -> u32 {
        let before = self.alive.load(Ordering::Relaxed) / ENDS_AT_ONCE;
        before.saturating_mul(LINGER_STEP_MS).min(jail::LINGER_MS_MAX)
    }
}

/// One live sandbox, and at its end its permit to die.
#[derive(Debug)]
pub(super) struct Mortal {
    deaths: Arc<Deaths>,
    turn: Option<OwnedSemaphorePermit>,
}

impl Mortal {
    pub(super) fn new(deaths: &Arc<Deaths>) -> Self {
        deaths.alive.fetch_add(1, Ordering::Relaxed);
        Self { deaths: Arc::clone(deaths), turn: None }
    }

    pub(super) fn failures(&self) -> &Failures {
        &self.deaths.failures
    }

    /// Waits until the sandbox may be killed. Its turn ends when this value is dropped, which must not happen
    /// before the sandbox is dead.
    pub(super) async fn take_turn(&mut self) {
        if self.turn.is_none() {
            // The semaphore is never closed; without a permit the sandbox would only die sooner.
            self.turn = Arc::clone(&self.deaths.turns).acquire_owned().await.ok();
        }
    }

    /// Whether the sandbox may be killed now.
    pub(super) fn try_turn(&mut self) -> bool {
        if self.turn.is_none() {
            self.turn = Arc::clone(&self.deaths.turns).try_acquire_owned().ok();
        }
        self.turn.is_some()
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.deaths.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_only_a_few_end_at_once() {
        let deaths = Arc::new(Deaths::new(&Arc::default()));
        assert_eq!(deaths.linger_ms(), 0);
        let mut all: Vec<Mortal> = (0..4096).map(|_| Mortal::new(&deaths)).collect();
        assert_eq!(deaths.linger_ms(), 4096, "the last of them waits for the others");
        let may_end = all.iter_mut().filter_map(|mortal| mortal.try_turn().then_some(())).count();
        assert_eq!(may_end, ENDS_AT_ONCE as usize);
        // Each dead sandbox makes room for one.
        drop(all.remove(0));
        let may_end = all.iter_mut().filter_map(|mortal| mortal.try_turn().then_some(())).count();
        assert_eq!(may_end, ENDS_AT_ONCE as usize);
        drop(all);
        assert_eq!(deaths.linger_ms(), 0);
    }

    #[tokio::test]
    async fn who_waits_for_a_turn_gets_it_when_another_is_dead() {
        let deaths = Arc::new(Deaths::new(&Arc::default()));
        let mut dying: Vec<Mortal> = (0..ENDS_AT_ONCE).map(|_| Mortal::new(&deaths)).collect();
        assert!(dying.iter_mut().all(Mortal::try_turn));
        let mut next = Mortal::new(&deaths);
        assert!(!next.try_turn());
        let (_, ()) = tokio::join!(next.take_turn(), async { drop(dying.pop()) });
        assert!(next.try_turn());
    }
}
