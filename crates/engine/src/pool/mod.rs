//! Spares: sandboxes that were built before anybody asked, with their interpreter started.
//!
//! ```text
//! run -> lease -> a spare of that key is ready?  yes: it gets the run's limits and is never seen here again
//!          |                                     no: the caller builds one itself (cold)
//!          +-- demand --> keeper -> build (off the path) -> ready -> leased, or let go: age, dead, memory, idle
//! ```
//! A key is what a sandbox is made of without its limits; nothing of a request or of a principal is in it, so any run
//! may take any spare of its key. What was leased never comes back: there is no way for it to. A spare that cannot be
//! used is no caller's error; the run is then as if there were no pool.

mod counts;
mod demand;
mod keeper;
mod shelf;
mod spare;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox::{Backend, BackendError, FailureKind, Failures, Limits, Sandbox, SandboxSpec, StartPhases};
use tokio::sync::Notify;
use tracing::Instrument;

use self::counts::PoolCounts;
pub use self::counts::{Discard, PoolLevel, PoolSnapshot, Purpose};
use self::shelf::{Shelf, Shelves};
use self::spare::Spare;
use crate::Engine;
use crate::admission::Admission;
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};
use crate::unstarted::Unstarted;

/// Spares of all keys together, those in the making included.
const SPARES_MAX: usize = 32;

/// How the pool is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Whether there is one at all.
    pub is_on: bool,
    /// Spares kept ready of a key that was used lately.
    pub floor: usize,
    /// The most of one key, however often it is asked for.
    pub ceiling: usize,
    /// What all spares together may use.
    pub memory_bytes_max: u64,
    /// Older ones are replaced.
    pub age_max: Duration,
}

impl PoolConfig {
    /// No pool: every sandbox is built when it is asked for.
    pub fn off() -> Self {
        Self { is_on: false, floor: 0, ceiling: 0, memory_bytes_max: 0, age_max: Duration::ZERO }
    }
}

/// A sandbox that somebody wants.
pub(crate) struct Want<'a> {
    pub(crate) spec: &'a SandboxSpec,
    /// What most of its kind are given: spares are built with it.
    pub(crate) usual: &'a Limits,
    /// The most that any of its kind is given.
    pub(crate) most: &'a Limits,
    pub(crate) language: &'a str,
    pub(crate) purpose: Purpose,
}

/// A sandbox for one run, from the pool or built for it.
pub(crate) struct Lease {
    pub(crate) sandbox: Box<dyn Sandbox>,
    /// The conversation with its guest, where it has begun already.
    guest: Option<(GuestReader, GuestWriter)>,
    /// How long getting it took, in parts.
    pub(crate) phases: StartPhases,
    /// Whether it was built before anybody asked.
    pub(crate) is_spare: bool,
}

impl Lease {
    /// One that was built for this run.
    pub(crate) fn cold(sandbox: Box<dyn Sandbox>) -> Self {
        Self { phases: sandbox.phases().clone(), sandbox, guest: None, is_spare: false }
    }

    /// The conversation with its guest.
    pub(crate) async fn connect(&mut self) -> Result<(GuestReader, GuestWriter), GuestError> {
        match self.guest.take() {
            Some(guest) => Ok(guest),
            None => guest_client::connect(self.sandbox.take_stream().ok_or(GuestError::Gone)?).await,
        }
    }
}

impl Engine {
    /// A sandbox that somebody wants: a spare where one is ready, else built now.
    pub(crate) async fn lease(&self, want: &Want<'_>) -> Result<Lease, Unstarted> {
        let span = tracing::debug_span!(
            "lease",
            language = want.language,
            purpose = want.purpose.name(),
            is_spare = tracing::field::Empty
        );
        async {
            let spare = self.pool.lease(want).await;
            tracing::Span::current().record("is_spare", spare.is_some());
            match spare {
                Some(lease) => Ok(lease),
                None => self.create(want.spec).await.map(Lease::cold),
            }
        }
        .instrument(span)
        .await
    }
}

/// The spares of one engine; dropping it destroys them.
pub(crate) struct Pool {
    /// Nothing: it is off.
    shared: Option<Arc<PoolShared>>,
}

/// What the pool and its keeper share.
struct PoolShared {
    config: PoolConfig,
    backend: Arc<dyn Backend>,
    admission: Arc<Admission>,
    shelves: Mutex<Shelves>,
    /// There is something to do for the keeper: somebody asked, a build ended, or the last run did.
    wake: Arc<Notify>,
    counts: PoolCounts,
    failures: Arc<Failures>,
}

impl Pool {
    pub(crate) fn new(
        config: PoolConfig,
        backend: &Arc<dyn Backend>,
        admission: &Arc<Admission>,
        failures: &Arc<Failures>,
    ) -> Self {
        let shared = || PoolShared {
            config,
            backend: Arc::clone(backend),
            admission: Arc::clone(admission),
            shelves: Mutex::default(),
            wake: Arc::clone(admission.quiet()),
            counts: PoolCounts::default(),
            failures: Arc::clone(failures),
        };
        Self { shared: config.is_on.then(|| Arc::new(shared())) }
    }

    /// A spare with these limits, if one is ready; asking is what makes the pool keep some.
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

    /// Gives up spares until so much memory is free for somebody who waits for it.
    pub(crate) fn give_way(&self, bytes: u64) {
        if let Some(shared) = &self.shared {
            let spares = shared.locked().take_least_wanted(bytes);
            shared.let_go(spares, Discard::Memory);
        }
    }

    /// Destroys all spares; none is made any more.
    pub(crate) async fn close(&self) {
        let Some(shared) = &self.shared else { return };
        let spares = shared.locked().close();
        shared.wake.notify_one();
        // All at once: each takes about a millisecond to die.
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

    /// Takes note of the demand; the first one brings the keeper.
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

    /// The first spare that is sound and can have these limits.
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
                // It is as it was, and good for others.
                Err(BackendError::Unfit { .. }) => {
                    let unwanted = self.locked().put_back(want, spare);
                    self.let_go(unwanted, Discard::Idle);
                    return None;
                }
                Err(error) => {
                    self.failures.report(FailureKind::Lease, subject, &error);
                    // Were they all like this, building more at once would help nobody.
                    self.locked().blame(want, Instant::now());
                    self.let_go([spare], Discard::Dead);
                }
            }
        }
    }

    /// Destroys spares off this path.
    fn let_go(&self, spares: impl IntoIterator<Item = Spare>, reason: Discard) {
        for mut spare in spares {
            self.counts.discard(reason);
            tracing::debug!(reason = reason.name(), "spare_discarded");
            // Whoever waits for memory has it now; the machine has it a moment later.
            spare.hold = None;
            tokio::spawn(spare.destroy());
        }
    }
}

#[cfg(test)]
mod tests;
