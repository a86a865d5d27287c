//! The counters of the pool. Front ends read them to show metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::{Histogram, Times};

/// The purpose of a spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Running a program.
    Run,
    /// Checking a program without running it.
    Check,
}

impl Purpose {
    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Check => "check",
        }
    }
}

/// Why an unused spare was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// It was too old.
    Age,
    /// Its guest or its interpreter was gone, or the backend could not apply its limits.
    Dead,
    /// Memory was short.
    Memory,
    /// The demand ended.
    Idle,
}

impl Discard {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Age, Self::Dead, Self::Memory, Self::Idle];

    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Dead => "dead",
            Self::Memory => "memory",
            Self::Idle => "idle",
        }
    }
}

/// The spares of one kind at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLevel {
    /// Their language.
    pub language: String,
    /// Their purpose.
    pub purpose: Purpose,
    /// How many can be leased.
    pub ready: usize,
}

/// The pool at one moment. All values are zero where the pool is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// The wall whose spares these are.
    pub wall: &'static str,
    /// Spares that are ready.
    pub levels: Vec<PoolLevel>,
    /// Runs that got a spare.
    pub hits: u64,
    /// Runs that found no spare and had a sandbox built.
    pub misses: u64,
    /// Builds that failed.
    pub build_failures: u64,
    /// Discarded spares, in the order of [`Discard::ALL`].
    pub discards: [u64; Discard::ALL.len()],
    /// How long successful builds took, until the interpreter was ready.
    pub builds: Times,
}

/// Counters since the start of the server.
#[derive(Default)]
pub(crate) struct PoolCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    build_failures: AtomicU64,
    discards: [AtomicU64; Discard::ALL.len()],
    builds: Histogram,
}

impl PoolCounts {
    pub(super) fn lease(&self, is_hit: bool) {
        if is_hit { &self.hits } else { &self.misses }.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn build(&self, is_built: bool, took: Duration) {
        if is_built {
            self.builds.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        } else {
            self.build_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn discard(&self, reason: Discard) {
        self.discards[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self, levels: Vec<PoolLevel>) -> PoolSnapshot {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PoolSnapshot {
            wall: "",
            levels,
            hits: load(&self.hits),
            misses: load(&self.misses),
            build_failures: load(&self.build_failures),
            discards: self.discards.each_ref().map(load),
            builds: self.builds.times(),
        }
    }
}
