//! Counts the runs of callers that have quotas, from before they begin until they really ended.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use policy::{Amount, Caller, Principal, Quota, Quotas};
use sandbox::Outcome;

use super::desk::Desk;
use super::ledger::{Ledger, NotReserved};
use super::quota::{EndedLease, Exceeded, LeaseId};
use super::{Gatekeeper, unusable};
use crate::clock::unix_ms;
use crate::result::{RunError, RunPhase, RunResult};

/// The code of a refusal by a quota.
pub const QUOTA_EXCEEDED: &str = "quota_exceeded";
/// How often the time of a run in progress is noted.
const REPORT_PAUSE: Duration = Duration::from_secs(5);

/// How long the end of a run waits to be written. Writing it at once would take the processor from the answer.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// A quota and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaUse {
    /// What is limited.
    pub amount: Amount,
    /// The most.
    pub limit: u64,
    /// What is used now.
    pub used: u64,
}

/// A place of a run in the caller's quotas. Dropping it frees the place and charges the time that passed.
#[derive(Debug)]
pub(crate) struct RunLease(Option<Held>);

#[derive(Debug)]
struct Held {
    desk: Arc<Desk<Ledger>>,
    id: LeaseId,
    /// The minute in which the run was counted.
    minute: u64,
    begun: Instant,
}

impl Gatekeeper {
    /// Puts other quotas in force, from the next call on. What is used stays.
    pub fn replace_quotas(&self, quotas: Quotas) {
        *self.quotas.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(quotas);
    }

    /// The quota of a caller.
    pub fn quota(&self, caller: &Caller) -> Quota {
        self.quotas.read().unwrap_or_else(PoisonError::into_inner).of(caller)
    }

    /// Counts a run that is about to begin, or says why it must not.
    pub(crate) async fn lease_run(&self, caller: &Caller) -> Result<RunLease, RunError> {
        let quota = self.quota(caller);
        if !quota.limits_runs() {
            return Ok(RunLease(None));
        }
        if let Some(lease) = self.prepaid.take(&caller.principal) {
            return Ok(lease);
        }
        let (principal, desk) = (caller.principal.clone(), Arc::clone(&self.desk));
        let leased = self.desk.ask(move |ledger| {
            let (id, minute) = ledger.begin_run(&principal, &quota, unix_ms() / 1000)?;
            // If the caller is gone when this arrives, dropping it frees the place.
            Ok(RunLease::new(desk, id, minute))
        });
        leased.await.map_err(|error| refusal(caller, &error))
    }

    /// Charges the processor time of processes that a program left in a persistent sandbox. Nothing is written where no
    /// caller has quotas.
    pub(crate) fn charge_between_runs(&self, principal: &Principal, cpu_us: u64) {
        let is_limited = !self.quotas.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !is_limited || cpu_us == 0 {
            return;
        }
        let principal = principal.clone();
        self.desk.nudge(move |ledger| {
            if let Err(error) = ledger.charge(&principal, cpu_us, unix_ms() / 1000) {
                tracing::warn!(?error, "processor_time_not_charged");
            }
        });
    }

    /// The quotas of runs of a caller, with what is used of them.
    pub(crate) async fn runs_in_use(&self, caller: &Caller) -> Result<Vec<QuotaUse>, RunError> {
        let quota = self.quota(caller);
        if !quota.limits_runs() {
            return Ok(Vec::new());
        }
        let principal = caller.principal.clone();
        let asked = self.desk.ask(move |ledger| ledger.in_use(&principal, unix_ms() / 1000)).await;
        let now = asked.map_err(|error| refusal(caller, &error))?;
        let used = |amount| match amount {
            Amount::ParallelRuns => now.parallel_runs,
            Amount::RunsPerMinute => now.runs_this_minute,
            _ => now.cpu_us_today / 1_000_000,
        };
        let of_runs = [Amount::ParallelRuns, Amount::RunsPerMinute, Amount::CpuSPerDay];
        let limited = of_runs.into_iter().filter_map(|amount| Some((amount, quota.get(amount)?)));
        Ok(limited.map(|(amount, limit)| QuotaUse { amount, limit, used: used(amount) }).collect())
    }
}

impl RunLease {
    pub(super) fn new(desk: Arc<Desk<Ledger>>, id: LeaseId, minute: u64) -> Self {
        Self(Some(Held { desk, id, minute, begun: Instant::now() }))
    }

    /// Does the work of a run, and notes from time to time how long it has taken: a run that is killed with its server
    /// is charged that much.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(held) = &self.0 else { return work.await };
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(REPORT_PAUSE) => {
                    let (id, spent) = (held.id.clone(), held.spent_us());
                    held.desk.nudge(move |ledger| {
                        if let Err(error) = ledger.report(&id, spent) {
                            tracing::debug!(?error, "lease_not_reported");
                        }
                    });
                }
            }
        }
    }

    /// Ends the lease of a run with that result.
    pub(crate) fn end_with(self, result: &RunResult) {
        let is_unbegun = matches!(result.phase, RunPhase::NotStarted)
            && matches!(result.outcome, Outcome::Refused | Outcome::Unavailable);
        let execution = result.execution();
        let building_ms =
            execution.compile.as_ref().filter(|build| !build.cached).map_or(0.0, |build| build.ms);
        let cpu_us = (execution.usage.cpu_ms + building_ms).max(0.0) * 1000.0;
        self.end(cpu_us as u64, is_unbegun);
    }

    /// Ends the lease. A run that did not begin is not counted. This server knows the end at once, and writes it before
    /// it counts the next run; the answer does not wait for the write.
    pub(crate) fn end(mut self, cpu_us: u64, is_unbegun: bool) {
        if let Some(held) = self.0.take() {
            let unbegun = is_unbegun.then_some(held.minute);
            held.end(cpu_us, unbegun);
        }
    }
}

impl Held {
    fn end(self, cpu_us: u64, unbegun: Option<u64>) {
        self.desk.kept().ended().push(EndedLease { id: self.id, cpu_us, unbegun });
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(SETTLE_PAUSE).await;
                settle(&self.desk);
            })),
            Err(_) => settle(&self.desk),
        }
    }

    fn spent_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

fn settle(desk: &Desk<Ledger>) {
    desk.nudge(|ledger| {
        if let Err(error) = ledger.settle_ended(unix_ms() / 1000) {
            // The place stays taken until a later transaction writes it.
            tracing::warn!(?error, "lease_not_ended");
        }
    });
}

impl Drop for RunLease {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let spent = held.spent_us();
            held.end(spent, None);
        }
    }
}

fn refusal(caller: &Caller, error: &NotReserved) -> RunError {
    match error {
        NotReserved::Quota(exceeded) => exceeded.refusal(caller),
        NotReserved::Failed(error) => unusable(error),
        NotReserved::Limit { denied, .. } => RunError::new(super::POLICY_DENIED, denied.reason.clone()),
    }
}

impl Exceeded {
    /// The refusal for the caller.
    pub(crate) fn refusal(&self, caller: &Caller) -> RunError {
        let remedy = match (self.amount, self.retry_after) {
            (Amount::ParallelRuns, _) => "wait for earlier runs to end, or cancel some".to_owned(),
            (Amount::Sandboxes, _) => "close sandboxes that are no longer needed".to_owned(),
            (Amount::DiskMb, _) => "remove files, or close sandboxes that are no longer needed".to_owned(),
            (_, wait) => format!("wait {} s, then try again", wait.map_or(1, |wait| wait.as_secs().max(1))),
        };
        tracing::info!(principal = %caller, quota = self.amount.name(), limit = self.limit, "quota_exceeded");
        let mut error = RunError::new(QUOTA_EXCEEDED, self.to_string()).remedy(remedy);
        error.retryable = self.retry_after.is_some();
        error.retry_after_ms =
            self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        error
    }
}

/// The outcome of a call that quotas or the ledger refused.
pub(crate) fn outcome_of(error: &RunError) -> Outcome {
    if error.code == QUOTA_EXCEEDED { Outcome::Refused } else { Outcome::Unavailable }
}
