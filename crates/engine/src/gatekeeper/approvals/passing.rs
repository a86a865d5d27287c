//! A call whose policy asks a human: it asks, waits for nothing, and passes once when it was approved.
//!
//! The order keeps each promise: a limit denies before a human is asked, the counters of an approved call are reserved
//! before its approval is consumed, and both are on the disk before the call has an effect.

use std::sync::Arc;

use policy::{Approval as ApprovalRule, NamedRules, Quota, Reservation};
use sandbox::Outcome;
use sha2::{Digest, Sha256};

use super::preview::shown_line;
use super::record::{Approval, ApprovalId, ApprovalState, NewApproval};
use super::{ApprovalError, ApprovalStore};
use crate::clock::unix_ms;
use crate::gatekeeper::desk::Desk;
use crate::gatekeeper::idempotency::digest;
use crate::gatekeeper::{APPROVAL_DENIED, APPROVAL_REQUIRED, Admitted, Gatekeeper, JudgedCall};
use crate::result::RunError;

/// How long a question and an approval last, if the policy does not say.
const TIMEOUT_S_DEFAULT: u64 = 3600;
const TIMEOUT_S_MAX: u64 = 7 * 24 * 3600;
/// The longest arguments that a human can be shown.
const ARGUMENTS_BYTES_MAX: usize = 256 << 10;
/// Another call may use an approval between two steps of this one.
const TRIES: usize = 4;
/// What fingerprints are for.
const DOMAIN: &[u8] = b"palisade approval 1";

/// What the rules say about a call that a human must approve.
pub(in crate::gatekeeper) struct Question<'q> {
    pub(in crate::gatekeeper) rules: &'q Arc<NamedRules>,
    pub(in crate::gatekeeper) rule: &'q ApprovalRule,
    pub(in crate::gatekeeper) reserve: Vec<Reservation>,
    /// The quota of the run that the call starts.
    pub(in crate::gatekeeper) run: Option<Quota>,
}

/// An approval that a call has consumed.
#[derive(Debug)]
pub(in crate::gatekeeper) struct UsedApproval {
    desk: Arc<Desk<ApprovalStore>>,
    id: ApprovalId,
}

impl UsedApproval {
    /// Its id.
    #[cfg_attr(not(test), allow(dead_code, reason = "receipts name it"))]
    pub(in crate::gatekeeper) fn id(&self) -> &ApprovalId {
        &self.id
    }

    /// Tells how the call ended. One that had no effect may be made again.
    pub(in crate::gatekeeper) async fn settle(self, outcome: Option<Outcome>) {
        if !matches!(outcome, Some(Outcome::Refused | Outcome::Unavailable)) {
            return;
        }
        let id = self.id;
        if let Err(error) = self.desk.ask(move |store| store.give_back(&id, unix_ms())).await {
            // It stays consumed, which allows nothing.
            tracing::warn!(reason = %error, "approval_not_returned");
        }
    }
}

impl Gatekeeper {
    /// Admits a call that was approved. Otherwise asks, and refuses with the id of the question.
    pub(in crate::gatekeeper) async fn admit_approved(
        &self,
        call: &JudgedCall<'_>,
        question: Question<'_>,
    ) -> Result<Admitted, RunError> {
        let new = new_approval(call, &question).map_err(|error| refused(&error, &question))?;
        for _ in 0..TRIES {
            let found = self.approvals.find(new.fingerprint).await;
            match found.map_err(|error| refused(&error, &question))? {
                Some(denied) if denied.state == ApprovalState::Denied => return Err(was_denied(&denied)),
                Some(approved) if approved.state == ApprovalState::Approved => {
                    if let Some(admitted) = self.pass(call, &question, &approved.id).await? {
                        return Ok(admitted);
                    }
                }
                _ => {
                    // Nothing happens yet, so nothing counts.
                    self.count_if_any(call, &question, None).await?.settle(Some(Outcome::Refused)).await;
                    let asked = self.approvals.ask(new).await.map_err(|error| refused(&error, &question))?;
                    return Err(required(&asked));
                }
            }
        }
        let error = RunError::new("busy", "other calls used the approvals of this call first");
        Err(RunError { retryable: true, ..error.remedy("make the same call again") })
    }

    /// Counts the call and takes its approval; `None` if another call took it.
    async fn pass(
        &self,
        call: &JudgedCall<'_>,
        question: &Question<'_>,
        id: &ApprovalId,
    ) -> Result<Option<Admitted>, RunError> {
        let mut admitted = self.count_if_any(call, question, question.run).await?;
        match self.approvals.consume(id).await {
            Ok(Some(consumed)) => {
                let desk = Arc::clone(&self.approvals.desk);
                admitted.passed = Some((consumed.id.to_string(), consumed.rule));
                admitted.approval = Some(UsedApproval { desk, id: consumed.id });
                Ok(Some(admitted))
            }
            Ok(None) => {
                admitted.settle(Some(Outcome::Refused)).await;
                Ok(None)
            }
            Err(error) => {
                admitted.settle(Some(Outcome::Refused)).await;
                Err(refused(&error, question))
            }
        }
    }

    async fn count_if_any(
        &self,
        call: &JudgedCall<'_>,
        question: &Question<'_>,
        run: Option<Quota>,
    ) -> Result<Admitted, RunError> {
        match question.reserve.is_empty() {
            true => Ok(Admitted::default()),
            false => self.count(call, question.rules, question.reserve.clone(), run).await,
        }
    }
}

fn new_approval(call: &JudgedCall<'_>, question: &Question<'_>) -> Result<NewApproval, ApprovalError> {
    let arguments = call.arguments.to_string();
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        return Err(ApprovalError::TooLarge { bytes: arguments.len(), max: ARGUMENTS_BYTES_MAX });
    }
    let rule = question.rule;
    let (policy, tool) = (question.rules.name.as_str(), call.names.last().copied().unwrap_or_default());
    let mut hasher = Sha256::new();
    for part in [DOMAIN, call.caller.principal.as_str().as_bytes(), tool.as_bytes(), policy.as_bytes()] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update(rule.rule.as_bytes());
    hasher.update(digest(call.arguments));
    Ok(NewApproval {
        fingerprint: hasher.finalize().into(),
        principal: call.caller.principal.clone(),
        label: call.caller.label.to_string(),
        tool: tool.to_owned(),
        policy: policy.to_owned(),
        rule: rule.rule.clone(),
        reason: rule.reason.clone(),
        by: rule.asks(call.caller),
        timeout_s: rule.timeout_s.unwrap_or(TIMEOUT_S_DEFAULT).min(TIMEOUT_S_MAX),
        preview: shown_line(tool, call.arguments),
        arguments,
    })
}

fn refused(error: &ApprovalError, question: &Question<'_>) -> RunError {
    let mut told = error.to_run_error();
    if !matches!(error, ApprovalError::Store(_)) {
        told.rule = Some(question.rule.rule.clone());
    }
    told
}

/// The answer while a human has not decided.
fn required(asked: &Approval) -> RunError {
    let reason = asked.reason.clone().unwrap_or_else(|| "the policy asks for an approval".to_owned());
    let id = &asked.id;
    let mut error = RunError::new(APPROVAL_REQUIRED, reason).remedy(format!(
        "nothing has happened yet; tell the user that an operator can see the call with `palisade approvals show {id}` and \
         allow it once with `palisade approvals approve {id}`, then make exactly the same call again"
    ));
    error.rule = Some(asked.rule.clone());
    error.retryable = true;
    error.approval_id = Some(id.clone());
    error
}

/// The answer after a human said no.
fn was_denied(denied: &Approval) -> RunError {
    let why = denied.decision.as_ref().and_then(|decision| decision.reason.as_deref());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let mut error = RunError::new(APPROVAL_DENIED, format!("a human denied this call{why}"))
        .remedy("do not make the same call again; tell the user, or do it another way");
    error.rule = Some(denied.rule.clone());
    error.approval_id = Some(denied.id.clone());
    error
}
