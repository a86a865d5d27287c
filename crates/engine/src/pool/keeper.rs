//! Who looks after the shelves: sweeps what is no good, builds what is wanted, off the path of every run.
//!
//! One per pool, from the first demand until the pool is gone. It builds few at a time and only while the machine has memory to
//! give; a build that fails is tried again later, each time later. No caller hears of it; the operator does, once.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use sandbox::FailureKind;
use tokio::sync::Notify;
use tracing::Instrument;

use super::spare::Spare;
use super::{Discard, PoolShared};
use crate::admission::machine_has;

/// Builds at once: they share the processors with the runs.
const BUILDS_MAX: usize = 2;
/// How often spares are looked at.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// One interpreter rehearses after the other.
const REHEARSAL_PAUSE: Duration = Duration::from_millis(3);
/// While there is no key at all only a demand wakes it.
const IDLE_PAUSE: Duration = Duration::from_secs(3600);
/// Beyond what it costs, the machine must have this much to give before a spare is built; with less, spares go.
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
        // Woken or not, there is something to look at then.
        tokio::time::timeout(pause, wake.notified()).await.ok();
    }
}

impl PoolShared {
    /// Builds what is wanted; tells when to look again.
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

    /// Lets go of what is no good any more, or too much.
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

    /// Begins a build, if one is wanted and can be afforded.
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
        let (place, spec) = (Place { shared: Arc::downgrade(self), id: shelf.id }, Arc::clone(&shelf.spec));
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

/// The place of a spare in the making; free again however that ends.
struct Place {
    shared: Weak<PoolShared>,
    id: u64,
}

impl Place {
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

impl Drop for Place {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some(shelf) = shared.locked().all.iter_mut().find(|shelf| shelf.id == self.id) {
            shelf.building = shelf.building.saturating_sub(1);
        }
        shared.wake.notify_one();
    }
}
