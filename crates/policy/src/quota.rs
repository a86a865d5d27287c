//! Quotas: how much one principal may have at a time, in a minute and in a day.
//!
//! `[quota]` of the configuration is for every caller but the server's owner. `[[quota.for]]` names callers by the
//! patterns of [`crate::Binding`]; the first one that matches counts, and an amount that it does not name is that of
//! `[quota]`. The owner has a quota only by a rule that matches.

use crate::book::names;
use crate::caller::Caller;

/// What a quota limits; the name has the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// Persistent sandboxes that are open.
    Sandboxes,
    /// Files of all persistent sandboxes together.
    DiskMb,
    /// Runs in progress, on all servers of the state directory.
    ParallelRuns,
    /// Runs begun in a calendar minute.
    RunsPerMinute,
    /// Processor time of the runs that ended on a calendar day (UTC).
    CpuSPerDay,
}

impl Amount {
    /// All amounts.
    pub const ALL: [Self; 5] =
        [Self::Sandboxes, Self::DiskMb, Self::ParallelRuns, Self::RunsPerMinute, Self::CpuSPerDay];

    /// Its name in the configuration and in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::DiskMb => "disk_mb",
            Self::ParallelRuns => "parallel_runs",
            Self::RunsPerMinute => "runs_per_minute",
            Self::CpuSPerDay => "cpu_s_per_day",
        }
    }

    /// The amount of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|amount| amount.name() == name)
    }
}

/// The quota of one caller; an amount without a value is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota([Option<u64>; 5]);

impl Quota {
    /// The value of an amount.
    pub fn get(&self, amount: Amount) -> Option<u64> {
        self.0[amount as usize]
    }

    /// Sets the value of an amount.
    pub fn set(&mut self, amount: Amount, value: Option<u64>) {
        self.0[amount as usize] = value;
    }

    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Whether the runs of the caller must be counted.
    pub fn limits_runs(&self) -> bool {
        [Amount::ParallelRuns, Amount::RunsPerMinute, Amount::CpuSPerDay]
            .into_iter()
            .any(|amount| self.get(amount).is_some())
    }
}

/// A rule for some callers. `None` for an amount that the rule does not name, `Some(None)` for one without a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaRule {
    /// The callers, as in a binding of policies.
    pub callers: String,
    amounts: [Option<Option<u64>>; 5],
}

impl QuotaRule {
    /// A rule that names no amount yet.
    pub fn new(callers: &str) -> Self {
        Self { callers: callers.to_owned(), ..Self::default() }
    }

    /// Names an amount.
    pub fn set(&mut self, amount: Amount, value: Option<u64>) {
        self.amounts[amount as usize] = Some(value);
    }

    /// What the rule says about an amount.
    pub fn get(&self, amount: Amount) -> Option<Option<u64>> {
        self.amounts[amount as usize]
    }
}

/// The quotas of all callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// For every caller but the server's owner.
    pub usual: Quota,
    /// The first one that matches counts.
    pub rules: Vec<QuotaRule>,
}

impl Quotas {
    /// Whether no caller has a quota.
    pub fn is_empty(&self) -> bool {
        self.usual.is_none() && self.rules.is_empty()
    }

    /// The quota of a caller.
    pub fn of(&self, caller: &Caller) -> Quota {
        let mut quota = if caller.principal.is_owner() { Quota::default() } else { self.usual };
        if let Some(rule) = self.rules.iter().find(|rule| names(&rule.callers, caller)) {
            for amount in Amount::ALL {
                if let Some(value) = rule.get(amount) {
                    quota.set(amount, value);
                }
            }
        }
        quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    fn caller(label: &str) -> Caller {
        Caller { label: label.into(), ..Caller::owner(Principal::new(label).unwrap()) }
    }

    #[test]
    fn the_owner_has_no_quota_and_every_other_caller_the_usual_one() {
        let mut quotas = Quotas::default();
        assert!(quotas.of(&caller("key:x")).is_none());
        quotas.usual.set(Amount::ParallelRuns, Some(4));
        assert!(quotas.of(&Caller::local()).is_none());
        assert!(quotas.of(&Caller::owner(Principal::token_holder())).is_none());
        let quota = quotas.of(&caller("key:x"));
        assert_eq!(quota.get(Amount::ParallelRuns), Some(4));
        assert!(quota.limits_runs() && quota.get(Amount::Sandboxes).is_none());
    }

    #[test]
    fn the_first_rule_that_matches_overrides_single_amounts() {
        let mut quotas = Quotas::default();
        quotas.usual.set(Amount::ParallelRuns, Some(4));
        quotas.usual.set(Amount::Sandboxes, Some(10));
        let mut ci = QuotaRule::new("key:ci-*");
        ci.set(Amount::ParallelRuns, Some(1));
        ci.set(Amount::Sandboxes, None);
        let mut all = QuotaRule::new("*");
        all.set(Amount::RunsPerMinute, Some(7));
        quotas.rules = vec![ci, all];
        let of_ci = quotas.of(&caller("key:ci-main"));
        assert_eq!((of_ci.get(Amount::ParallelRuns), of_ci.get(Amount::Sandboxes)), (Some(1), None));
        assert_eq!(of_ci.get(Amount::RunsPerMinute), None, "only the first rule counts");
        let of_other = quotas.of(&caller("key:x"));
        assert_eq!(of_other.get(Amount::RunsPerMinute), Some(7));
        assert_eq!(of_other.get(Amount::ParallelRuns), Some(4));
        let of_owner = quotas.of(&Caller::local());
        assert_eq!(of_owner.get(Amount::RunsPerMinute), Some(7), "the owner can have one too");
        assert_eq!(of_owner.get(Amount::ParallelRuns), None);
    }

    #[test]
    fn names_are_told_apart() {
        for amount in Amount::ALL {
            assert_eq!(Amount::parse(amount.name()), Some(amount));
        }
        assert_eq!(Amount::parse("runs"), None);
    }
}
