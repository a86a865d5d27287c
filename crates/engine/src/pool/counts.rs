//! What the pool counts, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::{Histogram, Times};

/// What a spare is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Running a program.
    Run,
    /// Looking at one without running it.
    Check,
}

impl Purpose {
    /// The name used in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Check => "check",
        }
    }
}

/// Why a spare went without ever being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// It was too old.
    Age,
    /// Its guest or its interpreter was gone, or it could not be given its limits.
    Dead,
    /// Memory was short.
    Memory,
    /// Nobody asked any more.
    Idle,
}

impl Discard {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Age, Self::Dead, Self::Memory, Self::Idle];

    /// The name used in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Dead => "dead",
            Self::Memory => "memory",
            Self::Idle => "idle",
        }
    }
}

/// Spares of one kind at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLevel {
    /// Their language.
    pub language: String,
    /// What they are for.
    pub purpose: Purpose,
    /// How many can be leased.
    pub ready: usize,
}

/// The pool at one moment; all zero where it is off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Spares that are ready.
    pub levels: Vec<PoolLevel>,
    /// Runs that got a spare.
    pub hits: u64,
    /// Runs that asked and had one built.
    pub misses: u64,
    /// Builds that failed.
    pub build_failures: u64,
    /// Spares that were never used, in the order of [`Discard::ALL`].
    pub discards: [u64; Discard::ALL.len()],
    /// How long builds took that did not fail, until the interpreter was ready.
    pub builds: Times,
}

/// Counts since the start.
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
            levels,
            hits: load(&self.hits),
            misses: load(&self.misses),
            build_failures: load(&self.build_failures),
            discards: self.discards.each_ref().map(load),
            builds: self.builds.times(),
        }
    }
}
