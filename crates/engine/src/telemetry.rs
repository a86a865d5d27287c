//! Counters of the engine. Front ends export them; this crate knows no monitoring system.
//!
//! Names are bounded: languages are the built-in ones, and error codes beyond a limit are counted together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sandbox::{FailureCounts, FailureKind, Outcome};

pub use crate::pool::{Discard, PoolLevel, PoolSnapshot, Purpose};
use crate::result::{Execution, RunResult};

/// The most error codes counted individually.
const CODES_MAX: usize = 64;
/// Stands for every name that is not counted individually.
pub const OTHER: &str = "other";
/// Upper bounds of the histogram buckets, in microseconds. One further bucket is unbounded.
pub const BOUNDS_US: [u64; 16] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    120_000_000,
    600_000_000,
];

/// A phase of a run that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for admission.
    Queued,
    /// Building the sandbox, until the program is sent.
    Start,
    /// The program.
    Program,
    /// Storing the result.
    Store,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Start, Self::Program, Self::Store];

    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Start => "start",
            Self::Program => "program",
            Self::Store => "store",
        }
    }
}

/// Counters since the start of the server.
pub struct Telemetry {
    languages: Vec<(&'static str, [AtomicU64; Outcome::ALL.len()])>,
    errors: Mutex<BTreeMap<String, u64>>,
    output_bytes: AtomicU64,
    store_failures: AtomicU64,
    phases: [Histogram; Phase::ALL.len()],
}

/// A histogram of durations.
#[derive(Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, us: u64) {
        let range = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.counts[range].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn times(&self) -> Times {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Times { counts: self.counts.iter().map(load).collect(), sum_us: load(&self.sum_us) }
    }
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Runs by language and outcome, without zero counts.
    pub runs: Vec<(&'static str, Outcome, u64)>,
    /// Runs that did not complete, by error code.
    pub errors: BTreeMap<String, u64>,
    /// The output of programs, as far as it was kept.
    pub output_bytes: u64,
    /// Runs that the store could not take when they ended.
    pub store_failures: u64,
    /// Runs that have not ended, including waiting ones.
    pub live: u64,
    /// Runs that wait for admission.
    pub waiting: u64,
    /// How long each phase took.
    pub phases: Vec<PhaseTimes>,
    /// The spares of each wall, the default first.
    pub pools: Vec<PoolSnapshot>,
    /// Failures that no caller was told about, for every kind.
    pub failures: Vec<(FailureKind, u64)>,
    /// What runs reached outside.
    pub egress: crate::access::ReachCounts,
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    /// The count of each bucket of [`BOUNDS_US`], the unbounded one last; not cumulative.
    pub counts: Vec<u64>,
    /// The sum of all durations.
    pub sum_us: u64,
}

/// How long one phase took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseTimes {
    /// The phase.
    pub phase: Phase,
    /// The durations.
    pub times: Times,
}

impl Telemetry {
    pub(crate) fn new(languages: impl Iterator<Item = &'static str>) -> Self {
        let languages = languages.chain([OTHER]).map(|name| (name, Default::default())).collect();
        Self {
            languages,
            errors: Mutex::default(),
            output_bytes: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            phases: Default::default(),
        }
    }

    /// Counts a run that ended or never began.
    pub(crate) fn count_run(&self, language: &str, result: &RunResult) {
        let found = self.languages.iter().find(|(name, _)| *name == language);
        if let Some((_, counts)) = found.or(self.languages.last()) {
            let at = Outcome::ALL.iter().position(|outcome| *outcome == result.outcome);
            counts[at.unwrap_or(0)].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(error) = &result.error {
            self.count_error(&error.code);
        }
        let Execution { stdout, stderr, usage, .. } = result.execution();
        let bytes = (stdout.len() + stderr.len()) as u64;
        self.output_bytes.fetch_add(bytes, Ordering::Relaxed);
        if usage.start_ms > 0.0 {
            let phases = [
                (Phase::Queued, usage.queued_ms),
                (Phase::Start, usage.start_ms),
                (Phase::Program, usage.wall_ms),
            ];
            phases.into_iter().for_each(|(phase, ms)| self.time(phase, (ms * 1000.0) as u64));
        }
    }

    /// Counts a request that became no run, or a run with an error.
    pub(crate) fn count_error(&self, code: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = errors.len() < CODES_MAX || errors.contains_key(code);
        *errors.entry(if is_known { code } else { OTHER }.to_owned()).or_default() += 1;
    }

    pub(crate) fn count_store_failure(&self) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn time(&self, phase: Phase, us: u64) {
        let Some(at) = Phase::ALL.iter().position(|known| *known == phase) else { return };
        self.phases[at].add(us);
    }

    pub(crate) fn snapshot(&self, live: usize, waiting: usize, pools: Vec<PoolSnapshot>) -> Snapshot {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut runs = Vec::new();
        for (language, counts) in &self.languages {
            let counted = Outcome::ALL.into_iter().zip(counts.iter().map(load));
            runs.extend(
                counted.filter(|(_, count)| *count > 0).map(|(outcome, count)| (*language, outcome, count)),
            );
        }
        let phases = Phase::ALL.into_iter().zip(&self.phases);
        let phases = phases.map(|(phase, taken)| PhaseTimes { phase, times: taken.times() });
        Snapshot {
            runs,
            errors: self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            output_bytes: load(&self.output_bytes),
            store_failures: load(&self.store_failures),
            egress: crate::access::ReachCounts::default(),
            live: live as u64,
            waiting: waiting as u64,
            phases: phases.collect(),
            pools,
            failures: Vec::new(),
        }
    }
}

/// The sum of the counts of two sources.
pub(crate) fn added(one: FailureCounts, other: FailureCounts) -> FailureCounts {
    std::array::from_fn(|kind| one[kind] + other[kind])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::RunError;

    #[test]
    fn unknown_languages_and_a_flood_of_codes_are_counted_together() {
        let telemetry = Telemetry::new(["python"].into_iter());
        for number in 0..1000 {
            let error = RunError::new(&format!("code_{number}"), "");
            let result = RunResult::not_started(Outcome::Refused, "fake", error);
            telemetry.count_run(&format!("language_{number}"), &result);
        }
        let snapshot = telemetry.snapshot(3, 2, Vec::new());
        assert_eq!(snapshot.runs, [(OTHER, Outcome::Refused, 1000)]);
        assert_eq!(snapshot.errors.len(), CODES_MAX + 1);
        assert_eq!(snapshot.errors[OTHER], 1000 - CODES_MAX as u64);
        assert_eq!((snapshot.live, snapshot.waiting), (3, 2));
    }

    #[test]
    fn times_fall_into_their_range() {
        let telemetry = Telemetry::new(std::iter::empty());
        for us in [250, 251, u64::MAX / 2] {
            telemetry.time(Phase::Store, us);
        }
        let phases = telemetry.snapshot(0, 0, Vec::new()).phases;
        let store = &phases.iter().find(|times| times.phase == Phase::Store).unwrap().times;
        assert_eq!((store.counts[0], store.counts[1], store.counts[BOUNDS_US.len()]), (1, 1, 1));
    }
}
