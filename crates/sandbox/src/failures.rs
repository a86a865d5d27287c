//! Failures that no caller hears of: told once with their cause, counted each time, and told again when they pass.
//!
//! A spare that cannot be built, a zygote that dies or a sweep that fails changes no answer: the work is done another way, or
//! later. An operator must know of it all the same, and must not be told every second. Engine, store and backend have one
//! [`Failures`] each; the engine adds them up. What is told holds the step and the system's reason, never a caller's data.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Subjects of one kind that are told apart; the rest is told as one.
const SUBJECTS_MAX: usize = 64;
const OTHER: &str = "other";
/// Reasons of one subject that are remembered as told; two that alternate are told once each.
const REASONS_MAX: usize = 4;
/// The longest reason that is told.
const REASON_CHARACTERS_MAX: usize = 400;
/// Paths below these are the kernel's; others may be a user's and are left out.
const PUBLIC_PATHS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// A sandbox that was to be built ahead of a run.
    Spare,
    /// A sandbox that was built ahead could not be given the limits of its run.
    Lease,
    /// A warm interpreter did not start, died, or gave no copy of itself.
    Zygote,
    /// A sandbox could not be destroyed.
    Destroy,
    /// Something left behind could not be removed.
    Sweep,
    /// The store could not be opened, written or purged.
    Store,
    /// Spans could not be sent to where they are collected.
    Export,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Spare, Self::Lease, Self::Zygote, Self::Destroy, Self::Sweep, Self::Store, Self::Export];

    /// The name used in figures; the events are `<name>_failed` and `<name>_recovered`.
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

/// What fails at present, and how often anything failed.
#[derive(Debug, Default)]
pub struct Failures {
    kinds: [Failing; FailureKind::ALL.len()],
}

#[derive(Debug, Default)]
struct Failing {
    count: AtomicU64,
    /// How many subjects fail now: nearly always none, and then nothing else is looked at.
    now: AtomicUsize,
    subjects: Mutex<BTreeMap<String, Told>>,
}

/// What was told of one subject since it began to fail.
#[derive(Debug, Default)]
struct Told {
    reasons: Vec<String>,
    count: u64,
}

impl Failures {
    /// Counts a failure; tells it unless the same was told before and has not passed since. The subject says which of its
    /// kind, in few words and without anything of a caller's.
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

    /// The same for what is no error but words.
    pub fn report_text(&self, kind: FailureKind, subject: &str, reason: &str, cause: Option<&str>) {
        let failing = &self.kinds[kind as usize];
        let count = failing.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (reason, cause) = (presentable(reason), cause.map(presentable));
        let text = cause.as_ref().map_or_else(|| reason.clone(), |cause| format!("{reason}: {cause}"));
        if failing.is_news(subject, text) {
            tracing::warn!(subject, reason, cause, count, "{}_failed", kind.name());
        }
    }

    /// Something worked; tells so where it had failed.
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

/// Words of the system without a user's paths, and not too long.
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
