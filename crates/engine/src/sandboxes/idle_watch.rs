//! Enforces limits between runs, while processes that a program left behind are alone in the sandbox.
//!
//! Each run is watched while it lasts. Between runs, nothing else would enforce the limits that only the host
//! can watch: the disk, processor time, and memory where no control group counts it. A program that reports its
//! end and continues would have no clock. Memory that idle sandboxes hold would be promised to others again. The
//! processor time that is used meanwhile is charged to the owner.
//!
//! One task examines all awake sandboxes. A sandbox in which nothing ran since the last examination costs one
//! short read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbox::Ending;
use tokio::sync::OwnedMutexGuard;

use super::Sandboxes;
use super::entry::{SandboxEntry, Slot};

const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// How many sandboxes may be awake at once. Beyond that, the least recently used one is put to sleep.
const AWAKE_MAX: u64 = 4096;
/// File descriptors that an awake sandbox keeps open: its stream, its process, its writable space, the lock of
/// its folder, its counter of processor time; and one in reserve.
const DESCRIPTORS_PER_AWAKE: u64 = 6;
/// File descriptors reserved for connections, files and fresh runs.
const DESCRIPTORS_KEPT: u64 = 4096;

/// Whether the watch task is running.
#[derive(Default)]
pub(super) struct IdleWatch(AtomicBool);

/// Ensures that the watch task examines a sandbox for as long as it is awake.
pub(super) fn watch_over(sandboxes: &Sandboxes, entry: &SandboxEntry) {
    entry.is_watched.store(true, Ordering::SeqCst);
    if !sandboxes.idle_watch.0.swap(true, Ordering::SeqCst) {
        tokio::spawn(watch(sandboxes.own.clone()));
    }
}

/// Examines all awake sandboxes until none is awake.
async fn watch(sandboxes: Weak<Sandboxes>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        let Some(sandboxes) = sandboxes.upgrade() else { return };
        let awake = sandboxes.awake();
        if awake.is_empty() {
            sandboxes.idle_watch.0.store(false, Ordering::SeqCst);
            // A sandbox that woke in this moment saw a running watch task. This task continues unless another
            // has started.
            if sandboxes.awake().is_empty() || sandboxes.idle_watch.0.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        for entry in awake {
            // A run in progress is already watched.
            let Some(mut slot) = entry.turn_now() else { continue };
            let is_quiet = slot.awake.as_mut().is_some_and(|awake| awake.sandbox.is_quiet());
            if !is_quiet {
                // In separate tasks: a workspace with many files does not delay the examination of others.
                tokio::spawn(look(Arc::clone(&sandboxes), entry, slot));
            }
        }
    }
}

/// Examines one sandbox. The caller holds its turn.
async fn look(sandboxes: Arc<Sandboxes>, entry: Arc<SandboxEntry>, mut slot: OwnedMutexGuard<Slot>) {
    let ending = match &mut slot.awake {
        Some(awake) => awake.sandbox.look().await,
        None => Some(Ending::Gone),
    };
    match ending {
        None => {
            let Some(awake) = slot.awake.as_mut() else { return };
            let used = awake.sandbox.usage().await;
            entry.memory_bytes.store(used.memory_peak_bytes, Ordering::Relaxed);
            let more_us = used.cpu_us.saturating_sub(awake.charged_cpu_us);
            awake.charged_cpu_us = used.cpu_us;
            sandboxes.engine.gatekeeper().charge_between_runs(&entry.record.principal, more_us);
        }
        Some(_) => {
            if slot.awake.is_some() {
                entry.tell_sleep("limit");
                drop(slot.sleep("what was left running went beyond a limit between two runs"));
            }
            entry.memory_bytes.store(0, Ordering::Relaxed);
            entry.note_awake(&slot);
            // The turn is still held: the run that wakes the sandbox next has it watched again.
            entry.is_watched.store(false, Ordering::SeqCst);
        }
    }
}

/// How many awake sandboxes the file descriptor limit of this process allows.
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

    /// Puts the least recently used sandboxes to sleep until memory and file descriptors
    /// leave room for one more.
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
