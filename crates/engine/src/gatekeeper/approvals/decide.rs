//! Who may decide about an approval.

use policy::{ApproveBy, Caller, Principal, Scope};

use super::error::ApprovalError;
use super::record::Approval;

/// The longest reason of a decision.
pub(super) const REASON_CHARACTERS_MAX: usize = 500;

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// One call may pass.
    Approve,
    /// The call must not happen.
    Deny,
}

/// Who decides.
#[derive(Debug, Clone)]
pub enum Approver {
    /// The user who owns the state directory, at the command line or the control socket. This user can change every
    /// policy and key, so no rule of this module could bind them.
    Local,
    /// A caller of the admin API. It needs the scope `approve` and never decides about its own call.
    Caller(Caller),
    /// The user of the client that made the call, asked by elicitation. The policy must say so.
    OfCall(Principal),
}

impl Approver {
    /// Whether this approver may decide.
    pub(super) fn check(&self, approval: &Approval) -> Result<(), ApprovalError> {
        match self {
            Self::Local => Ok(()),
            Self::Caller(caller) if !caller.may(Scope::Approve) => Err(ApprovalError::MissingScope),
            Self::Caller(caller) if caller.principal == approval.principal => {
                Err(ApprovalError::OwnCall(approval.id.clone()))
            }
            Self::Caller(_) => Ok(()),
            Self::OfCall(principal) if *principal != approval.principal => {
                Err(ApprovalError::Unknown(approval.id.to_string()))
            }
            Self::OfCall(_) if approval.by == ApproveBy::Operator => {
                Err(ApprovalError::OperatorOnly(approval.id.clone()))
            }
            Self::OfCall(_) => Ok(()),
        }
    }

    /// Who decided, for people.
    pub(super) fn label(&self, approval: &Approval) -> String {
        match self {
            Self::Local => "local".to_owned(),
            Self::Caller(caller) => caller.label.to_string(),
            Self::OfCall(_) => format!("{} (asked by the client)", approval.label),
        }
    }
}
