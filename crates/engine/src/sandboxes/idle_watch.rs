//! What holds between runs, when programs that were left running have the sandbox to themselves.
//!
//! A run has a watch of its own. Without one, limits that only the host can watch (the disk; processor time; memory,
//! where no control group counts it) would hold for nobody: a program that says it is done and goes on would have no
//! clock. And memory that idle sandboxes keep would be promised again to others.
//!
//! One task looks at all of them. A sandbox in which nothing ran since the last look costs it one short read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbox::Ending;
use tokio::sync::OwnedMutexGuard;

use super::Sandboxes;
use super::entry::{SandboxEntry, Slot};

const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Sandboxes that are awake at once; beyond them the one that was not used for longest is put to sleep.
const AWAKE_MAX: u64 = 4096;
/// What one that is awake keeps open: its stream, its process, its writable space, the lock of its folder, its count of
/// processor time; and one to spare.
const DESCRIPTORS_PER_AWAKE: u64 = 6;
/// Left to connections, files and runs of their own.
const DESCRIPTORS_KEPT: u64 = 4096;

/// Whether somebody looks.
#[derive(Default)]
pub(super) struct IdleWatch(AtomicBool);

/// Sees to it that somebody looks at a sandbox for as long as it is awake.
pub(super) fn watch_over(sandboxes: &Sandboxes, entry: &SandboxEntry) {
    entry.is_watched.store(true, Ordering::SeqCst);
    if !sandboxes.idle_watch.0.swap(true, Ordering::SeqCst) {
        tokio::spawn(watch(sandboxes.own.clone()));
    }
}

/// Until nothing is awake any more.
async fn watch(sandboxes: Weak<Sandboxes>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        let Some(sandboxes) = sandboxes.upgrade() else { return };
        let awake = sandboxes.awake();
        if awake.is_empty() {
            sandboxes.idle_watch.0.store(false, Ordering::SeqCst);
            // One that woke in this moment saw that somebody looks; unless another has begun to, this one goes on.
            if sandboxes.awake().is_empty() || sandboxes.idle_watch.0.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        for entry in awake {
            // A run that is on is watched already.
            let Some(mut slot) = entry.turn_now() else { continue };
            let is_quiet = slot.awake.as_mut().is_some_and(|awake| awake.sandbox.is_quiet());
            if !is_quiet {
                // Each by itself: a workspace of many files does not hold up the look at others.
                tokio::spawn(look(entry, slot));
            }
        }
    }
}

/// One look, by whoever has the turn.
async fn look(entry: Arc<SandboxEntry>, mut slot: OwnedMutexGuard<Slot>) {
    let ending = match &mut slot.awake {
        Some(awake) => awake.sandbox.look().await,
        None => Some(Ending::Gone),
    };
    match ending {
        None => {
            let held = slot.awake.as_mut().map_or(0, |awake| awake.sandbox.usage().memory_peak_bytes);
            entry.memory_bytes.store(held, Ordering::Relaxed);
        }
        Some(_) => {
            if slot.awake.is_some() {
                entry.tell_sleep("limit");
                drop(slot.sleep("what was left running went beyond a limit between two runs"));
            }
            entry.memory_bytes.store(0, Ordering::Relaxed);
            entry.note_awake(&slot);
            // The turn is still ours: whoever wakes it next has it watched again.
            entry.is_watched.store(false, Ordering::SeqCst);
        }
    }
}

/// How many this process has descriptors for.
fn awake_max() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    awake_within(descriptors)
}

fn awake_within(descriptors: u64) -> u64 {
    let spared = descriptors.saturating_sub(DESCRIPTORS_KEPT).max(descriptors / 2);
    (spared / DESCRIPTORS_PER_AWAKE).min(AWAKE_MAX)
}

impl Sandboxes {
    fn awake(&self) -> Vec<Arc<SandboxEntry>> {
        self.entries().values().filter(|entry| entry.is_watched.load(Ordering::SeqCst)).cloned().collect()
    }

    /// Puts those to sleep that were not used for longest, until what the rest keeps leaves room for one more.
    pub(super) fn make_room_awake(&self) {
        let budget = self.engine.admission.memory_bytes_max();
        let most = awake_max();
        let mut awake = self.awake();
        let held = |entry: &Arc<SandboxEntry>| entry.memory_bytes.load(Ordering::Relaxed);
        let mut bytes: u64 = awake.iter().map(held).sum();
        let mut count = awake.len() as u64;
        if bytes <= budget && count < most {
            return;
        }
        awake.sort_by_key(|entry| entry.used_ms());
        for entry in &awake {
            if bytes <= budget && count < most {
                return;
            }
            let Some(mut slot) = entry.turn_now() else { continue };
            entry.tell_sleep("room");
            drop(slot.sleep("others needed the room and the interpreter was put to sleep"));
            bytes = bytes.saturating_sub(held(entry));
            count -= 1;
            entry.memory_bytes.store(0, Ordering::Relaxed);
            entry.is_watched.store(false, Ordering::SeqCst);
            entry.note_awake(&slot);
            entry.let_go(&mut slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::awake_within;

    #[test]
    fn thousands_may_be_awake_where_descriptors_allow() {
        assert!(awake_within(20_000) >= 2000);
        assert_eq!(awake_within(1024), 85);
        assert_eq!(awake_within(u64::MAX), super::AWAKE_MAX);
    }
}
