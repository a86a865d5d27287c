//! Spares: sandboxes built ahead of demand, with their interpreter started.
//!
//! ```text
//! run -> lease -> a spare of that key is ready?  yes: it gets the run's limits and leaves the pool
//!          |                                     no: the caller builds one itself (cold)
//!          +-- demand --> keeper -> build (background) -> ready -> leased, or discarded: age, dead, memory, idle
//! ```
//! A key is everything that a sandbox is made of except its limits. It contains nothing of a request or of a
//! principal, so any run may lease any spare of its key. A leased sandbox never returns to the pool; no code
//! path exists for it. An unusable spare causes no error for the caller: the run proceeds as if there were no
//! pool.

mod counts;
mod demand;
mod keeper;
mod shelf;
mod spare;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox::{Backend, BackendError, FailureKind, Failures, Limits, Sandbox, SandboxSpec, StartPhases};
use tokio::sync::Notify;

use self::counts::PoolCounts;
pub use self::counts::{Discard, PoolLevel, PoolSnapshot, Purpose};
use self::shelf::{Shelf, Shelves};
use self::spare::Spare;
use crate::admission::Admission;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};

/// The most spares of all keys together, including those being built.
const SPARES_MAX: usize = 32;

/// The configuration of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Whether the pool is on.
    pub is_on: bool,
    /// How many spares to keep of a recently used key.
    pub floor: usize,
    /// The most spares of one key, whatever the demand.
    pub ceiling: usize,
    /// The most memory that all spares together may use.
    pub memory_bytes_max: u64,
    /// Spares older than this are replaced.
    pub age_max: Duration,
}

impl PoolConfig {
    /// A configuration without a pool: every sandbox is built on request.
    pub fn off() -> Self {
        Self { is_on: false, floor: 0, ceiling: 0, memory_bytes_max: 0, age_max: Duration::ZERO }
    }
}

/// What the pools of one engine have in common.
pub(crate) struct PoolParts<'a> {
    pub(crate) config: PoolConfig,
    pub(crate) admission: &'a Arc<Admission>,
    pub(crate) failures: &'a Arc<Failures>,
}

/// A request for a sandbox.
pub(crate) struct Want<'a> {
    pub(crate) spec: &'a SandboxSpec,
    /// The limits of most sandboxes of this kind. Spares are built with them.
    pub(crate) usual: &'a Limits,
    /// The largest limits of any sandbox of this kind.
    pub(crate) most: &'a Limits,
    pub(crate) language: &'a str,
    pub(crate) purpose: Purpose,
}

/// A sandbox for one run, from the pool or built for it.
pub(crate) struct Lease {
    pub(crate) sandbox: Box<dyn Sandbox>,
    /// The connection to its guest, if it is already established.
    guest: Option<(GuestReader, GuestWriter)>,
    /// How long each part of obtaining it took.
    pub(crate) phases: StartPhases,
    /// Whether it was built ahead of demand.
    pub(crate) is_spare: bool,
}

impl Lease {
    /// A sandbox that was built for this run.
    pub(crate) fn cold(sandbox: Box<dyn Sandbox>) -> Self {
        Self { phases: sandbox.phases().clone(), sandbox, guest: None, is_spare: false }
    }

    /// Returns the connection to its guest.
    pub(crate) async fn connect(&mut self) -> Result<(GuestReader, GuestWriter), GuestError> {
        match self.guest.take() {
            Some(guest) => Ok(guest),
            None => guest_client::connect(self.sandbox.take_stream().ok_or(GuestError::Gone)?).await,
        }
    }
}

/// The spares of one wall. Dropping it destroys them.
pub(crate) struct Pool {
    /// `None` where the pool is off or the wall cannot be warmed.
    shared: Option<Arc<PoolShared>>,
}

/// The state that the pool and its keeper share.
struct PoolShared {
    config: PoolConfig,
    backend: Arc<dyn Backend>,
    admission: Arc<Admission>,
    shelves: Mutex<Shelves>,
    /// Wakes the keeper: a request arrived, a build ended, or the last run ended.
    wake: Arc<Notify>,
    counts: PoolCounts,
    failures: Arc<Failures>,
}

impl Pool {
    pub(crate) fn new(parts: &PoolParts<'_>, backend: &Arc<dyn Backend>) -> Self {
        let config = parts.config;
        let shared = || PoolShared {
            config,
            backend: Arc::clone(backend),
            admission: Arc::clone(parts.admission),
            shelves: Mutex::default(),
            wake: parts.admission.quiet(),
            counts: PoolCounts::default(),
            failures: Arc::clone(parts.failures),
        };
        // A wall that cannot be warmed has no spares.
        Self { shared: (config.is_on && backend.is_warmable()).then(|| Arc::new(shared())) }
    }

    /// Leases a spare and applies these limits, if one is ready. Each call counts as demand.
    pub(crate) async fn lease(&self, want: &Want<'_>) -> Option<Lease> {
        let shared = self.shared.as_ref()?;
        let started = Instant::now();
        shared.ask(want, started);
        let leased = shared.lease(want).await;
        shared.counts.lease(leased.is_some());
        if leased.is_none() {
            shared.locked().miss(want, started);
        }
        shared.wake.notify_one();
        let (sandbox, guest) = leased?;
        let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let phases = StartPhases { parts_us: vec![("lease", took_us)] };
        Some(Lease { sandbox, guest: Some(guest), phases, is_spare: true })
    }

    /// Discards spares until a waiting run can have this much memory. Returns how much they held.
    pub(crate) fn give_way(&self, bytes: u64) -> u64 {
        let Some(shared) = &self.shared else { return 0 };
        let spares = shared.locked().take_least_wanted(bytes);
        let freed = spares.iter().map(|spare| spare.cost_bytes).sum();
        shared.let_go(spares, Discard::Memory);
        freed
    }

    /// Destroys all spares. No more are built.
    pub(crate) async fn close(&self) {
        let Some(shared) = &self.shared else { return };
        let spares = shared.locked().close();
        shared.wake.notify_one();
        // Destroyed concurrently: each takes about a millisecond.
        let ends: Vec<_> = spares.into_iter().map(|spare| tokio::spawn(spare.destroy())).collect();
        for end in ends {
            if let Err(error) = end.await {
                tracing::debug!(reason = %error, "spare_not_awaited");
            }
        }
    }

    pub(crate) fn snapshot(&self) -> PoolSnapshot {
        let Some(shared) = &self.shared else { return PoolSnapshot::default() };
        let levels = shared.locked().all.iter().map(Shelf::level).collect::<Vec<PoolLevel>>();
        shared.counts.snapshot(levels)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            drop(shared.locked().close());
            shared.wake.notify_one();
        }
    }
}

impl PoolShared {
    fn locked(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the demand. The first demand starts the keeper.
    fn ask(self: &Arc<Self>, want: &Want<'_>, now: Instant) {
        let mut shelves = self.locked();
        let displaced = shelves.ask(want, now);
        let is_first = !std::mem::replace(&mut shelves.is_kept, true);
        drop(shelves);
        self.let_go(displaced, Discard::Idle);
        if is_first {
            tokio::spawn(keeper::keep(Arc::downgrade(self), Arc::clone(&self.wake)));
        }
    }

    /// Returns the first healthy spare to which the limits can be applied.
    async fn lease(&self, want: &Want<'_>) -> Option<(Box<dyn Sandbox>, (GuestReader, GuestWriter))> {
        loop {
            let mut spare = self.locked().take(want)?;
            if !spare.is_well() {
                self.let_go([spare], Discard::Dead);
                continue;
            }
            let subject = want.language;
            match spare.take_limits(&want.spec.limits).await {
                Ok(()) => {
                    self.failures.recovered(FailureKind::Lease, subject);
                    return Some(spare.into_parts());
                }
                // The spare is unchanged and fits other runs.
                Err(BackendError::Unfit { .. }) => {
                    let unwanted = self.locked().put_back(want, spare);
                    self.let_go(unwanted, Discard::Idle);
                    return None;
                }
                Err(error) => {
                    self.failures.report(FailureKind::Lease, subject, &error);
                    // If all spares fail in this way, building more at once does not help.
                    self.locked().blame(want, Instant::now());
                    self.let_go([spare], Discard::Dead);
                }
            }
        }
    }

    /// Destroys spares in the background.
    fn let_go(&self, spares: impl IntoIterator<Item = Spare>, reason: Discard) {
        for mut spare in spares {
            self.counts.discard(reason);
            tracing::debug!(reason = reason.name(), "spare_discarded");
            // Releases the promised memory to waiting runs now. The machine has it a moment later.
            spare.hold = None;
            tokio::spawn(spare.destroy());
        }
    }
}

#[cfg(test)]
mod tests;
