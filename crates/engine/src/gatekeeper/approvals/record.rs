//! One approval, as it is kept and told.

use crate::audit::Event;
use policy::{ApproveBy, Principal};
use serde_json::{Value, json};

crate::handle::handle! {
    /// The id of an approval. It grants nothing by itself.
    ApprovalId, "apr_"
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// A human has to decide.
    Pending,
    /// One call may pass.
    Approved,
    /// The call must not happen.
    Denied,
    /// A call has passed.
    Consumed,
    /// Its time is over, or it was voided.
    Expired,
}

impl ApprovalState {
    /// All states, in the order of their numbers in the database.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Denied, Self::Consumed, Self::Expired];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Consumed => "consumed",
            Self::Expired => "expired",
        }
    }

    pub(super) fn number(self) -> i64 {
        Self::ALL.iter().position(|state| *state == self).map_or(-1, |place| place as i64)
    }

    pub(super) fn of_number(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|place| Self::ALL.get(place)).copied()
    }
}

/// Which approvals are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Those that wait for a decision or for their call.
    Open,
    /// Those that are over, too.
    All,
}

/// What a human decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// Who: the label of the approver.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// An approval. The arguments of its call are read apart, because they may be long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// Whose call it is.
    pub principal: Principal,
    /// The caller's name for people.
    pub label: String,
    /// The tool.
    pub tool: String,
    /// The policy that asks.
    pub policy: String,
    /// Its rule, as a JSON pointer into the file.
    pub rule: String,
    /// Why the policy asks.
    pub reason: Option<String>,
    /// Whether the user of the calling client may decide, beside the operator.
    pub by: ApproveBy,
    /// The call in one line that cannot deceive.
    pub preview: String,
    /// Its state.
    pub state: ApprovalState,
    /// When it was asked for, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ends. An approval begins a new time.
    pub expires_ms: u64,
    /// What was decided, and by whom.
    pub decision: Option<ApprovalDecision>,
    /// When a call used it.
    pub consumed_ms: Option<u64>,
    /// The digest of what it is for.
    pub fingerprint: [u8; 32],
}

impl Approval {
    /// The decision for the audit: about which call, by whom and why.
    pub fn decided_event(&self) -> Event {
        let decision = self.decision.as_ref();
        Event::new("approval_decided")
            .with("approval", self.id.as_str())
            .with("state", self.state.name())
            .with("principal", self.principal.as_str())
            .with("label", self.label.as_str())
            .with("tool", self.tool.as_str())
            .with("rule", self.rule.as_str())
            .with("by", decision.map(|decision| decision.by.as_str()))
            .with("reason", decision.and_then(|decision| decision.reason.as_deref()))
    }

    /// The approval for programs.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id.as_str(),
            "state": self.state.name(),
            "principal": self.principal.as_str(),
            "label": self.label,
            "tool": self.tool,
            "policy": self.policy,
            "rule": self.rule,
            "reason": self.reason,
            "approve_by": self.by.name(),
            "preview": self.preview,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
            "decided_ms": self.decision.as_ref().map(|decision| decision.at_ms),
            "decided_by": self.decision.as_ref().map(|decision| decision.by.as_str()),
            "decision_reason": self.decision.as_ref().and_then(|decision| decision.reason.as_deref()),
            "consumed_ms": self.consumed_ms,
        })
    }
}

/// A call that a human is asked about.
#[derive(Debug, Clone)]
pub(super) struct NewApproval {
    pub(super) fingerprint: [u8; 32],
    pub(super) principal: Principal,
    pub(super) label: String,
    pub(super) tool: String,
    pub(super) policy: String,
    pub(super) rule: String,
    pub(super) reason: Option<String>,
    pub(super) by: ApproveBy,
    pub(super) timeout_s: u64,
    /// JSON.
    pub(super) arguments: String,
    pub(super) preview: String,
}
