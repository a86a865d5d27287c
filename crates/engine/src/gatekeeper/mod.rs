//! The gatekeeper: the one place that asks policy about a call.
//!
//! A call of a tool is judged by the policy that binds its caller before it has any effect ([`Gatekeeper::admit`]): the
//! rules, then the counters of their limits. The actions of which it consists are judged by the scopes of the caller
//! and the operator's limits ([`Engine::judge`]): a fresh run and a run in a persistent sandbox when their language is
//! known, the opening of a sandbox, a check of a program, and each lookup of a run, a sandbox or its files. Nothing else
//! in this crate calls [`policy::judge`] or [`policy::Rules::judge`].

mod admitted;
mod approvals;
mod counters;
mod database;
mod desk;
mod idempotency;
mod key_text;
mod keys;
mod leases;
mod ledger;
mod nested;
mod prepaid;
mod quota;
mod record;
mod roll;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use policy::{
    Book, Bound, Call, Caller, Denial, Denied, Judgement, Limit, NamedRules, Principal, Quota, Quotas,
    Reservation, Terms, Verdict,
};
use sandbox::Outcome;
use serde_json::Value;
use tokio::sync::watch;

pub use self::admitted::Admitted;
use self::approvals::Question;
pub use self::approvals::{
    Approval, ApprovalDecision, ApprovalError, ApprovalId, ApprovalState, ApprovalStore, Approvals, Approver,
    Choice, Fold, Listed, Shown, shown_arguments, visible,
};
pub use self::counters::counted;
use self::desk::Desk;
use self::idempotency::Memory;
pub(crate) use self::idempotency::feed;
pub use self::idempotency::{
    Claim, ClaimEnd, IDEMPOTENCY_CONFLICT, IDEMPOTENCY_INTERRUPTED, IDEMPOTENCY_KEY_BYTES_MAX,
    IDEMPOTENCY_RUNNING, IdempotencyKey, KeyedCall, Recalled,
};
pub use self::key_text::{KeyDigest, KeyId, KeyText, NotAKey, ShownKey};
pub use self::keys::{Key, KeyError, KeyState, Keys, KeysSeen, NewKey};
use self::leases::RunLease;
pub(crate) use self::leases::outcome_of;
pub use self::leases::{QUOTA_EXCEEDED, QuotaUse};
use self::ledger::{Ledger, NotReserved};
use self::nested::NestedQuestions;
pub use self::nested::{NESTED_APPROVAL_PATIENCE, NO_HANDLE, OpenQuestion, RULE_TOOL_ASKS};
use self::prepaid::Prepaid;
pub(crate) use self::quota::Exceeded;
pub use self::record::{Decided, Decision, Record, decisions};
pub(crate) use self::record::{language as language_of, names as argument_names};
use self::roll::Roll;
use crate::Engine;
use crate::audit::Audit;
use crate::clock::unix_ms;
use crate::result::RunError;
use crate::store::StoreError;

/// The folder of the gate in the state directory.
const FOLDER: &str = "gate";
/// The newest layouts of the databases of the gate that this program knows.
pub(crate) mod layouts {
    pub(crate) use super::approvals::LAYOUT as APPROVALS;
    pub(crate) use super::keys::LAYOUT as KEYS;
    pub(crate) use super::ledger::LAYOUT as LEDGER;
}

/// The code of a refusal by policy.
pub const POLICY_DENIED: &str = "policy_denied";
/// The code of a call that needs a human's approval.
pub const APPROVAL_REQUIRED: &str = "approval_required";
/// The code of a call that a human denied.
pub const APPROVAL_DENIED: &str = "approval_denied";
/// The rule of a denial because no policy binds the caller.
const NO_POLICY: &str = "(no policy)";
/// From this identical denial on, the answer says not to try again.
const DENIALS_TOLERATED: u32 = 3;
/// Denials that are remembered, to recognise identical ones.
const DENIALS_MAX: usize = 4096;

impl Engine {
    /// The terms on which an action may proceed, or why it may not.
    pub(crate) fn judge(&self, call: &Call<'_>) -> Result<Terms, RunError> {
        match policy::judge(self.policy(), call) {
            Verdict::Proceed(terms) => Ok(terms),
            Verdict::Deny(Denial { code, reason, remedy }) => Err(RunError::new(code, reason).remedy(remedy)),
        }
    }
}

/// A call of a tool, as policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct JudgedCall<'c> {
    /// Who calls.
    pub caller: &'c Caller,
    /// The published name of the tool and its own, if they differ.
    pub names: &'c [&'c str],
    /// The arguments as they are carried out.
    pub arguments: &'c Value,
}

/// Judges calls of tools by the policies in force.
pub struct Gatekeeper {
    book: RwLock<Arc<Book>>,
    quotas: RwLock<Arc<Quotas>>,
    desk: Arc<Desk<Ledger>>,
    prepaid: Arc<Prepaid>,
    memory: Memory,
    approvals: Approvals,
    nested: NestedQuestions,
    denials: Mutex<HashMap<u64, u32>>,
    record: Record,
    audit: Audit,
    /// Changes whenever other policies are put in force.
    changes: watch::Sender<u64>,
    /// Why the newest policies are not in force.
    flaw: Mutex<Option<String>>,
    /// Changes whenever policy files were read, whether they can be used or not.
    reads: watch::Sender<u64>,
    is_reload_wanted: AtomicBool,
}

impl Gatekeeper {
    /// A gatekeeper of that state directory.
    pub fn new(state_dir: &Path, book: Book) -> Self {
        let gate = state_dir.join(FOLDER);
        let roll = Arc::new(Roll::new(&gate));
        let ledger = Ledger::new(&gate, Arc::clone(&roll));
        let hasty = ledger.hasty(&gate);
        Self {
            book: RwLock::new(Arc::new(book)),
            quotas: RwLock::default(),
            desk: Arc::new(Desk::with_hasty(ledger, hasty)),
            prepaid: Arc::default(),
            memory: Memory::new(&gate, roll),
            approvals: Approvals::new(state_dir),
            nested: NestedQuestions::default(),
            denials: Mutex::default(),
            record: Record::new(state_dir),
            audit: Audit::new(state_dir),
            changes: watch::Sender::new(0),
            flaw: Mutex::default(),
            reads: watch::Sender::new(0),
            is_reload_wanted: AtomicBool::new(false),
        }
    }

    /// Puts other policies in force, from the next call on. Counters go on.
    pub fn replace(&self, book: Book) {
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.changes.send_modify(|number| *number += 1);
        self.reads.send_modify(|number| *number += 1);
    }

    /// Keeps the policies in force, because newer ones cannot be used.
    pub fn keep(&self, reason: String) {
        *self.flaw.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.reads.send_modify(|number| *number += 1);
    }

    /// Why the newest policies are not in force; `None` if they are.
    pub fn flaw(&self) -> Option<String> {
        self.flaw.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The policies in force.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the policy files read again, and waits until that is done. `None` if it takes too long; else why the files
    /// cannot be used, if they cannot.
    pub async fn reload(&self, patience: Duration) -> Option<Result<(), String>> {
        let mut reads = self.reads.subscribe();
        reads.mark_unchanged();
        self.want_reload();
        tokio::time::timeout(patience, reads.changed()).await.ok()?.ok()?;
        Some(self.flaw().map_or(Ok(()), Err))
    }

    /// Notifies when other policies are put in force.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Asks for the policy files to be read again, even if they seem unchanged.
    pub fn want_reload(&self) {
        self.is_reload_wanted.store(true, Ordering::Release);
    }

    /// Whether a reload was asked for since the last time.
    pub fn take_reload_wish(&self) -> bool {
        self.is_reload_wanted.swap(false, Ordering::AcqRel)
    }

    /// The audit of this process.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The record of decisions.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The questions to humans, and their answers.
    pub fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Whether a policy that binds this caller hides a tool. Such a tool does not exist for the caller.
    pub fn conceals(&self, caller: &Caller, names: &[&str]) -> bool {
        matches!(self.bound(caller), Bound::By(rules) if rules.rules.hides(names))
    }

    /// Whether the rules deny a call or ask a human about it. It is not counted: this is for what an admitted call gave,
    /// when it is used.
    pub fn forbids(&self, call: JudgedCall<'_>) -> bool {
        match self.bound(call.caller) {
            Bound::Free => false,
            Bound::Nothing => true,
            Bound::By(rules) => {
                let judgement = rules.rules.judge(call.names, call.arguments);
                !matches!(judgement, Judgement::Allowed { approval: None, .. })
            }
        }
    }

    /// Refuses a call that the rules deny now. Nothing is counted: this is for a call that was carried out before and is
    /// answered again.
    pub fn permit_again(&self, call: JudgedCall<'_>) -> Result<(), RunError> {
        match self.bound(call.caller) {
            Bound::Free => Ok(()),
            Bound::Nothing => Err(self.deny(&call, &unbound(call.caller), None)),
            Bound::By(rules) => match rules.rules.judge(call.names, call.arguments) {
                Judgement::Denied(denied) => Err(self.deny(&call, &denied, None)),
                Judgement::Allowed { .. } => Ok(()),
            },
        }
    }

    /// Whether the rules allow a call without counting it or asking for an approval. Counters that all tools share are
    /// not considered: this is for what another call, which they counted, gives along.
    pub fn allows_uncounted(&self, call: JudgedCall<'_>) -> bool {
        match self.bound(call.caller) {
            Bound::Free => true,
            Bound::Nothing => false,
            Bound::By(rules) => match rules.rules.judge(call.names, call.arguments) {
                Judgement::Allowed { reserve, approval: None } => {
                    reserve.iter().all(|one| one.limit.tool == Limit::OF_ALL_TOOLS)
                }
                _ => false,
            },
        }
    }

    /// Whether some policy treats this caller differently from others.
    pub fn binds(&self, caller: &Caller) -> bool {
        !matches!(self.bound(caller), Bound::Free)
    }

    /// Whether a tool is kept out of the lists that this caller gets.
    pub fn hides(&self, caller: &Caller, names: &[&str]) -> bool {
        match self.bound(caller) {
            Bound::Free => false,
            Bound::By(rules) => rules.rules.hides(names),
            Bound::Nothing => true,
        }
    }

    /// Admits a call, or says why it must not happen.
    pub async fn admit(&self, call: JudgedCall<'_>) -> Result<Admitted, RunError> {
        self.admit_starting(call, None, None).await
    }

    /// The same for a call that starts one run, which is counted with it.
    pub async fn admit_run(&self, call: JudgedCall<'_>) -> Result<Admitted, RunError> {
        let quota = self.quota(call.caller);
        self.admit_starting(call, quota.limits_runs().then_some(quota), None).await
    }

    async fn admit_starting(
        &self,
        call: JudgedCall<'_>,
        run: Option<Quota>,
        asks: Option<&policy::Approval>,
    ) -> Result<Admitted, RunError> {
        let bound = self.bound(call.caller);
        let name = match &bound {
            Bound::By(rules) => rules.name.as_str(),
            Bound::Free | Bound::Nothing => "",
        };
        let admitted = self.decide(&call, &bound, run, asks).await;
        let noted = match &admitted {
            Ok(_) => Some((Decided::Allowed, "")),
            Err(error) => error.rule.as_deref().map(|rule| match error.code.as_str() {
                APPROVAL_REQUIRED => (Decided::NeedsApproval, rule),
                _ => (Decided::Denied, rule),
            }),
        };
        if let Some(noted) = noted {
            self.record.note(&call, name, noted);
        }
        self.enter(&call, name, admitted).await
    }

    /// Records the decision before it has an effect. What cannot be recorded does not happen.
    async fn enter(
        &self,
        call: &JudgedCall<'_>,
        policy: &str,
        decided: Result<Admitted, RunError>,
    ) -> Result<Admitted, RunError> {
        let mut admitted = decided.inspect_err(|error| self.audit.refuse(call, policy, error))?;
        let passed = admitted.passed.as_ref().map(|(approval, rule)| (approval.as_str(), rule.as_str()));
        match self.audit.allow(call, policy, passed) {
            Ok(audited) => {
                admitted.audited = audited;
                Ok(admitted)
            }
            Err(error) => {
                admitted.settle(Some(Outcome::Unavailable)).await;
                Err(error)
            }
        }
    }

    async fn decide(
        &self,
        call: &JudgedCall<'_>,
        bound: &Bound,
        run: Option<Quota>,
        asks: Option<&policy::Approval>,
    ) -> Result<Admitted, RunError> {
        let rules = match bound {
            Bound::Free => return self.admit_unbound(call, asks).await,
            Bound::By(rules) => rules,
            Bound::Nothing => return Err(self.deny(call, &unbound(call.caller), None)),
        };
        let (reserve, approval) = match rules.rules.judge(call.names, call.arguments) {
            Judgement::Denied(denied) => return Err(self.deny(call, &denied, None)),
            Judgement::Allowed { reserve, approval } => (reserve, approval),
        };
        let wall_lists = rules.rules.wall_lists(call.names);
        let admitted = match approval.or(asks) {
            Some(rule) => self.admit_approved(call, Question { rules, rule, reserve, run }).await?,
            None if reserve.is_empty() => Admitted::default(),
            None => self.count(call, rules, reserve, run).await?,
        };
        Ok(Admitted { wall_lists, ..admitted })
    }

    async fn count(
        &self,
        call: &JudgedCall<'_>,
        rules: &Arc<NamedRules>,
        reserve: Vec<Reservation>,
        run: Option<Quota>,
    ) -> Result<Admitted, RunError> {
        match self.reserve(Arc::clone(rules), &call.caller.principal, reserve, run).await {
            Ok(admitted) => Ok(admitted),
            Err(NotReserved::Limit { denied, retry_after }) => {
                Err(self.deny(call, &denied, Some(retry_after)))
            }
            Err(NotReserved::Quota(exceeded)) => Err(exceeded.refusal(call.caller)),
            Err(NotReserved::Failed(error)) => Err(unusable(&error)),
        }
    }

    fn bound(&self, caller: &Caller) -> Bound {
        self.book.read().unwrap_or_else(PoisonError::into_inner).of(caller)
    }

    async fn reserve(
        &self,
        rules: Arc<NamedRules>,
        principal: &Principal,
        reserve: Vec<Reservation>,
        run: Option<Quota>,
    ) -> Result<Admitted, NotReserved> {
        let (owner, now, desk) = (principal.clone(), unix_ms() / 1000, Arc::clone(&self.desk));
        let Some(quota) = run else {
            let reserve = move |ledger: &Ledger| ledger.reserve(&rules, &owner, &reserve, now);
            let reserved = self.desk.ask(reserve).await?;
            return Ok(Admitted { reserved: Some((desk, reserved)), ..Admitted::default() });
        };
        let held = Arc::clone(&desk);
        let reserve = move |ledger: &Ledger| {
            let (reserved, id, minute) = ledger.reserve_run(&rules, (&owner, &reserve), &quota, now)?;
            Ok::<_, NotReserved>((reserved, RunLease::new(held, id, minute)))
        };
        let (reserved, lease) = self.desk.ask(reserve).await?;
        let deposit = Some(self.prepaid.put(principal, lease));
        Ok(Admitted { reserved: Some((desk, reserved)), deposit, ..Admitted::default() })
    }

    /// The refusal for the model. It says so when the same call was refused before for the same reason.
    fn deny(&self, call: &JudgedCall<'_>, denied: &Denied, retry_after: Option<Duration>) -> RunError {
        let times = self.count_denial(call, &denied.rule);
        let remedy = match (times >= DENIALS_TOLERATED, retry_after) {
            _ if denied.rule == NO_POLICY => "ask the operator to bind a policy to this caller".to_owned(),
            (true, None) => {
                "the same call was refused before; do not try it again, and tell the user".to_owned()
            }
            (false, None) => "change the call so that the policy allows it, or ask the operator".to_owned(),
            (_, Some(wait)) => format!("wait {} s, then try again", wait.as_secs().max(1)),
        };
        let mut error = RunError::new(POLICY_DENIED, denied.reason.clone()).remedy(remedy);
        error.rule = Some(denied.rule.clone());
        error.retryable = retry_after.is_some();
        error.retry_after_ms = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        tracing::info!(principal = %call.caller, tool = call.names.first(), rule = denied.rule, "policy_denied");
        error
    }

    fn count_denial(&self, call: &JudgedCall<'_>, rule: &str) -> u32 {
        let mut hasher = DefaultHasher::new();
        (call.caller.principal.as_str(), call.names, rule, call.arguments.to_string()).hash(&mut hasher);
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if denials.len() >= DENIALS_MAX {
            denials.clear();
        }
        let times = denials.entry(hasher.finish()).or_default();
        *times = times.saturating_add(1);
        *times
    }
}

/// The answer when the ledger cannot be used: what cannot be counted must not happen.
fn unusable(error: &StoreError) -> RunError {
    tracing::error!(reason = %error, "ledger_failed");
    error.to_run_error()
}

fn unbound(caller: &Caller) -> Denied {
    let reason = match &caller.policy {
        Some(policy) => format!("the policy `{policy}` of {caller} does not exist, so it may do nothing"),
        None => format!("no policy is bound to {caller}, so it may do nothing"),
    };
    Denied { rule: NO_POLICY.to_owned(), reason }
}

#[cfg(test)]
mod tests;
