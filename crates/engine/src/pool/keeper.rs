//! The keeper task of a pool: discards unusable spares and builds wanted ones, outside the path of any run.
//!
//! A pool has one keeper, from the first demand until the pool is dropped. The keeper builds few spares at a
//! time, and only while the machine has free memory. It retries a failed build after growing pauses. Callers
//! never see these failures; the operator gets one report.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sandbox::FailureKind;
use tokio::sync::Notify;
use tracing::Instrument;

use super::spare::Spare;
use super::{Discard, PoolShared};
use crate::admission::machine_has;

/// The most builds at once, because they share the processors with the runs.
const BUILDS_MAX: usize = 2;
/// How often the keeper examines the spares.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The pause between the warm-up runs of two interpreters.
const REHEARSAL_PAUSE: Duration = Duration::from_millis(3);
/// Without any key, only a demand wakes the keeper.
const IDLE_PAUSE: Duration = Duration::from_secs(3600);
/// Free memory that the machine must have beyond the cost of a spare before one is built. With less, spares are
/// discarded.
const MARGIN_BYTES: u64 = 256 << 20;

pub(super) async fn keep(shared: Weak<PoolShared>, wake: Arc<Notify>) {
    let mut sweep_at = Instant::now();
    loop {
        let now = Instant::now();
        let pause = match shared.upgrade() {
            Some(shared) if !shared.locked().is_closed() => {
                if now >= sweep_at {
                    shared.sweep(now);
                    sweep_at = now + LOOK_PAUSE;
                }
                shared.tend(now)
            }
            _ => return,
        };
        // After the pause or a notification, the loop examines the pool again.
        tokio::time::timeout(pause, wake.notified()).await.ok();
    }
}

impl PoolShared {
    /// Starts the wanted builds. Returns how long to pause.
    fn tend(self: &Arc<Self>, now: Instant) -> Duration {
        let is_quiet = self.admission.is_quiet();
        while self.start_build(now, is_quiet) {}
        let mut shelves = self.locked();
        if shelves.all.is_empty() {
            return IDLE_PAUSE;
        }
        if is_quiet && shelves.rehearse_one() {
            return REHEARSAL_PAUSE;
        }
        let next =
            shelves.next_build_at(now, is_quiet, &self.config).map(|at| at.saturating_duration_since(now));
        next.unwrap_or(LOOK_PAUSE).min(LOOK_PAUSE)
    }

    /// Discards spares that are unusable or no longer wanted.
    pub(super) fn sweep(&self, now: Instant) {
        let is_short = !machine_has(MARGIN_BYTES);
        let mut shelves = self.locked();
        let dead = shelves.sweep_dead();
        let aged = shelves.sweep_aged(now, self.config.age_max);
        let idle = shelves.sweep_idle(now, &self.config);
        let surplus = shelves.cost_bytes().saturating_sub(self.config.memory_bytes_max);
        let given_up = shelves.take_least_wanted(if is_short { u64::MAX } else { surplus });
        drop(shelves);
        self.let_go(dead, Discard::Dead);
        self.let_go(aged, Discard::Age);
        self.let_go(idle, Discard::Idle);
        self.let_go(given_up, Discard::Memory);
    }

    /// Starts a build, if one is wanted and there is memory for it.
    fn start_build(self: &Arc<Self>, now: Instant, is_quiet: bool) -> bool {
        let mut shelves = self.locked();
        if shelves.building() >= BUILDS_MAX {
            return false;
        }
        let cost = shelves.cost_bytes();
        let Some(shelf) = shelves.next_to_build(now, is_quiet, &self.config) else { return false };
        let needed = shelf.cost_bytes;
        let is_affordable = cost.saturating_add(needed) <= self.config.memory_bytes_max
            && self.admission.has_memory(needed)
            && machine_has(needed.saturating_add(MARGIN_BYTES));
        if !is_affordable {
            return false;
        }
        shelf.building += 1;
        let (place, spec) =
            (BuildSlot { shared: Arc::downgrade(self), id: shelf.id }, Arc::clone(&shelf.spec));
        let subject = shelf.subject();
        drop(shelves);
        let span = tracing::debug_span!(parent: None, "refill", spare = %subject);
        let backend = Arc::clone(&self.backend);
        let failures = Arc::clone(&self.failures);
        let refill = async move {
            let started = Instant::now();
            let built = Spare::build(backend.as_ref(), &spec).await;
            match &built {
                Ok(_) => failures.recovered(FailureKind::Spare, &subject),
                Err(error) => failures.report(FailureKind::Spare, &subject, error),
            }
            place.fill(built.ok(), started.elapsed());
        };
        tokio::spawn(refill.instrument(span));
        true
    }
}

/// The slot of a spare that is being built. Dropping it frees the slot.
struct BuildSlot {
    shared: Weak<PoolShared>,
    id: u64,
}

impl BuildSlot {
    fn fill(self, built: Option<Spare>, took: Duration) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.counts.build(built.is_some(), took);
        let Some(mut spare) = built else {
            if let Some(shelf) = shared.locked().of_build(self.id) {
                shelf.fail(Instant::now());
            }
            return;
        };
        spare.hold = shared.admission.hold_memory(spare.cost_bytes);
        if spare.hold.is_none() {
            if let Some(shelf) = shared.locked().of_build(self.id) {
                shelf.cost_bytes = spare.cost_bytes;
                shelf.fail(Instant::now());
            }
            shared.let_go([spare], Discard::Memory);
            return;
        }
        let mut shelves = shared.locked();
        match shelves.of_build(self.id) {
            Some(shelf) => shelf.put(spare, took),
            None => {
                drop(shelves);
                shared.let_go([spare], Discard::Idle);
            }
        }
    }
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some(shelf) = shared.locked().all.iter_mut().find(|shelf| shelf.id == self.id) {
            shelf.building = shelf.building.saturating_sub(1);
        }
        shared.wake.notify_one();
    }
}
