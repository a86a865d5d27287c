//! Why an approval was not asked for, found or decided.

use super::record::{ApprovalId, ApprovalState};
use crate::gatekeeper::desk::WorkError;
use crate::result::RunError;
use crate::store::StoreError;

/// Why an approval was not asked for, found or decided.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// There is none with that id.
    #[error("there is no approval `{0}`")]
    Unknown(String),
    /// It was decided before, or is over.
    #[error("the approval {id} is {} already", state.name())]
    Decided {
        /// Its id.
        id: ApprovalId,
        /// Its state.
        state: ApprovalState,
    },
    /// The approver made the call.
    #[error("the approval {0} is about a call of the same caller, and no caller decides about its own call")]
    OwnCall(ApprovalId),
    /// The approver may not decide.
    #[error("the caller does not have the scope `approve`")]
    MissingScope,
    /// Only an operator may decide.
    #[error("only an operator may decide about the approval {0}")]
    OperatorOnly(ApprovalId),
    /// The reason is too long.
    #[error("a reason has at most {} characters", super::REASON_CHARACTERS_MAX)]
    LongReason,
    /// Too many wait.
    #[error("{open} approvals {} are open, and no more are possible", if *is_of_caller { "of this caller" } else { "of this server" })]
    TooMany {
        /// How many.
        open: u64,
        /// Whether one caller has them all.
        is_of_caller: bool,
    },
    /// The arguments cannot be shown to a human.
    #[error("the arguments have {bytes} bytes, and a human is shown at most {max}")]
    TooLarge {
        /// Their length as JSON.
        bytes: usize,
        /// The longest.
        max: usize,
    },
    /// Somebody else could approve.
    #[error("{0}")]
    Exposed(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ApprovalError {
    /// A stable identifier of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_approval",
            Self::Decided { .. } => "approval_decided",
            Self::OwnCall(_) => "approval_own_call",
            Self::MissingScope => "insufficient_scope",
            Self::OperatorOnly(_) => "approval_operator_only",
            Self::LongReason => "bad_reason",
            Self::TooMany { .. } => "approvals_full",
            Self::TooLarge { .. } => "approval_too_large",
            Self::Exposed(_) => "approvals_exposed",
            Self::Store(error) => error.code(),
        }
    }

    /// What to do next.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "see the open approvals: `palisade approvals list`",
            Self::Decided { .. } => "the same call asks again when it is made again",
            Self::OwnCall(_) => "ask another operator, or use the command line as the user of the server",
            Self::MissingScope => "use a key with the scope `approve`",
            Self::OperatorOnly(_) => "ask an operator: `palisade approvals approve ID`",
            Self::LongReason => "give a shorter reason",
            Self::TooMany { .. } => "wait until an operator has decided about earlier calls",
            Self::TooLarge { .. } => {
                "put long data into a file of a persistent sandbox first, and make a smaller call"
            }
            Self::Exposed(_) => "ask the operator",
            Self::Store(error) => error.remedy(),
        }
    }

    /// The error for a caller whose call needs an approval.
    pub(super) fn to_run_error(&self) -> RunError {
        if let Self::Store(error) = self {
            tracing::error!(reason = %error, "approvals_failed");
            return error.to_run_error();
        }
        let message = match self {
            Self::Exposed(reason) => {
                tracing::error!(reason, "approvals_exposed");
                "others could change the approvals of this server, so none counts".to_owned()
            }
            other => other.to_string(),
        };
        let mut error = RunError::new(self.code(), message).remedy(self.remedy());
        error.retryable = matches!(self, Self::TooMany { .. } | Self::Exposed(_));
        error
    }
}

impl WorkError for ApprovalError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_busy())
    }
}
