//! Failures that are not reported to any caller: logged once with their cause, counted each time, and logged
//! again when they recover.
//!
//! A spare that cannot be built, a zygote process that dies or a sweep that fails changes no answer: the
//! server does the work another way, or later. The operator must still learn of it, but not every second.
//! Engine, store and backend have one [`Failures`] each, and the engine adds them up. A log entry holds the
//! step and the system's reason, never a caller's data.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many subjects of one kind are distinguished; the others are grouped under one name.
const SUBJECTS_MAX: usize = 64;
const OTHER: &str = "other";
/// How many reasons of one subject are remembered as logged. Two alternating reasons are logged once each.
const REASONS_MAX: usize = 4;
/// Longest reason that is logged.
const REASON_CHARACTERS_MAX: usize = 400;
/// Paths below these belong to the kernel. Other paths may belong to a user and are left out.
const PUBLIC_PATHS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// A spare could not be built.
    Spare,
    /// A spare could not be given the limits of its run.
    Lease,
    /// A zygote process did not start, died, or produced no copy of its interpreter.
    Zygote,
    /// A sandbox could not be destroyed.
    Destroy,
    /// A leftover resource could not be removed.
    Sweep,
    /// The store could not be opened, written or purged.
    Store,
    /// Spans could not be sent to their collector.
    Export,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Spare, Self::Lease, Self::Zygote, Self::Destroy, Self::Sweep, Self::Store, Self::Export];

    /// The name used in metrics; the events are `<name>_failed` and `<name>_recovered`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Lease => "lease",
            Self::Zygote => "zygote",
            Self::Destroy => "destroy",
            Self::Sweep => "sweep",
            Self::Store => "store",
            Self::Export => "export",
        }
    }
}

/// How often something failed, by kind.
pub type FailureCounts = [u64; FailureKind::ALL.len()];

/// What fails at present, and how often each kind has failed.
#[derive(Debug, Default)]
pub struct Failures {
    kinds: [Failing; FailureKind::ALL.len()],
}

#[derive(Debug, Default)]
struct Failing {
    count: AtomicU64,
    /// How many subjects fail now. It is nearly always zero, and then the map is not examined.
    now: AtomicUsize,
    subjects: Mutex<BTreeMap<String, Told>>,
}

/// What was logged about one subject since it began to fail.
#[derive(Debug, Default)]
struct Told {
    reasons: Vec<String>,
    count: u64,
}

impl Failures {
    /// Counts a failure. Logs it unless the same failure was logged before and has not recovered since. The
    /// subject identifies the failing item within its kind, briefly and without any caller's data.
    pub fn report(&self, kind: FailureKind, subject: &str, error: &dyn Error) {
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        let cause = (!causes.is_empty()).then(|| causes.join(": "));
        self.report_text(kind, subject, &error.to_string(), cause.as_deref());
    }

    /// The same for a failure that is described by text instead of an error.
    pub fn report_text(&self, kind: FailureKind, subject: &str, reason: &str, cause: Option<&str>) {
        let failing = &self.kinds[kind as usize];
        let count = failing.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (reason, cause) = (presentable(reason), cause.map(presentable));
        let text = cause.as_ref().map_or_else(|| reason.clone(), |cause| format!("{reason}: {cause}"));
        if failing.is_news(subject, text) {
            tracing::warn!(subject, reason, cause, count, "{}_failed", kind.name());
        }
    }

    /// Notes a success; logs a recovery if the subject had failed.
    pub fn recovered(&self, kind: FailureKind, subject: &str) {
        let failing = &self.kinds[kind as usize];
        if failing.now.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut subjects = failing.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = subjects.remove(subject);
        failing.now.store(subjects.len(), Ordering::Relaxed);
        drop(subjects);
        if let Some(told) = passed {
            tracing::info!(subject, failures = told.count, "{}_recovered", kind.name());
        }
    }

    /// How often something failed, in the order of [`FailureKind::ALL`].
    pub fn counts(&self) -> FailureCounts {
        self.kinds.each_ref().map(|failing| failing.count.load(Ordering::Relaxed))
    }
}

impl Failing {
    fn is_news(&self, subject: &str, reason: String) -> bool {
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_apart = subjects.len() < SUBJECTS_MAX || subjects.contains_key(subject);
        let told = subjects.entry(if is_apart { subject } else { OTHER }.to_owned()).or_default();
        told.count += 1;
        let is_news = told.reasons.len() < REASONS_MAX && !told.reasons.contains(&reason);
        if is_news {
            told.reasons.push(reason);
        }
        self.now.store(subjects.len(), Ordering::Relaxed);
        is_news
    }
}

/// A system message without a user's paths, shortened to the maximum length.
fn presentable(text: &str) -> String {
    let is_hidden = |word: &str| {
        let word = word.trim_start_matches(['"', '\'', '(', '`']);
        word.starts_with('/') && !PUBLIC_PATHS.iter().any(|public| word.starts_with(public))
    };
    let words = text.split(' ').map(|word| if is_hidden(word) { "(path)" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn count(failures: &Failures, kind: FailureKind) -> u64 {
        failures.counts()[kind as usize]
    }

    #[test]
    fn every_kind_is_at_its_place_and_has_a_name_of_its_own() {
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        let names: std::collections::BTreeSet<_> = FailureKind::ALL.map(FailureKind::name).into();
        assert_eq!(names.len(), FailureKind::ALL.len());
    }

    #[test]
    fn a_failure_is_news_once_for_each_cause_until_it_passes() {
        let failing = Failing::default();
        let news = |reason: &str| failing.is_news("python", reason.to_owned());
        assert_eq!(["no memory", "no memory", "no room", "no memory"].map(news), [true, false, true, false]);
        assert!(failing.is_news("node", "no memory".to_owned()), "another subject");
    }

    #[test]
    fn every_failure_is_counted_and_one_that_passed_is_news_again() {
        let failures = Failures::default();
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        (0..3).for_each(|_| failures.report(FailureKind::Spare, "python", &error));
        failures.recovered(FailureKind::Spare, "node");
        assert_eq!(failures.kinds[0].now.load(Ordering::Relaxed), 1, "another's success changes nothing");
        failures.recovered(FailureKind::Spare, "python");
        assert_eq!(failures.kinds[0].now.load(Ordering::Relaxed), 0);
        assert!(failures.kinds[0].is_news("python", error.to_string()));
        assert_eq!(count(&failures, FailureKind::Spare), 3);
        assert_eq!(count(&failures, FailureKind::Sweep), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let failures = Failures::default();
        for number in 0..1000 {
            failures.report_text(
                FailureKind::Sweep,
                &format!("subject {number}"),
                &format!("{number}"),
                None,
            );
        }
        let failing = &failures.kinds[FailureKind::Sweep as usize];
        let subjects = failing.subjects.lock().unwrap();
        assert_eq!(subjects.len(), SUBJECTS_MAX + 1);
        assert!(subjects.values().all(|told| told.reasons.len() <= REASONS_MAX));
    }

    #[test]
    fn a_users_paths_are_not_told() {
        let told = presentable("unable to open \"/home/someone/state/x.db\": see /proc/sys/user");
        assert_eq!(told, "unable to open (path) see /proc/sys/user");
        assert_eq!(presentable(&"long ".repeat(1000)).chars().count(), REASON_CHARACTERS_MAX);
    }
}
