//! Why a language cannot be used, with messages for the caller.

use std::time::Duration;

use sandbox::InventoryError;

/// When to retry after a late answer for which no later attempt is planned.
const LATE_RETRY_MS: u64 = 1000;

/// Why a language cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// The name is not a known language.
    #[error("`{name}` is not a language Palisade knows; it knows {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known languages.
        known: String,
    },
    /// Its interpreter is not installed.
    #[error("{title} is not installed on this server: none of {commands}")]
    Missing {
        /// The language.
        title: String,
        /// The commands that were looked for.
        commands: String,
    },
    /// Its interpreter did not answer in time. The server probes it again.
    #[error("{title} is installed on this server but could not be examined yet: {reason}")]
    Late {
        /// The language.
        title: String,
        /// What went wrong.
        reason: String,
        /// When the server probes it again.
        retry_after_ms: u64,
    },
    /// Its interpreter does not work.
    #[error("{title} is installed on this server but does not work: {reason}")]
    Broken {
        /// The language.
        title: String,
        /// The probe's message.
        reason: String,
    },
}

impl RuntimeError {
    /// The wall's answer about that language.
    pub(super) fn of(title: String, error: InventoryError) -> Self {
        match error {
            InventoryError::Missing { commands } => Self::Missing { title, commands },
            InventoryError::Broken { reason } => Self::Broken { title, reason },
            InventoryError::Late { reason } => Self::Late { title, reason, retry_after_ms: LATE_RETRY_MS },
        }
    }

    /// A stable identifier of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "language_unknown",
            Self::Missing { .. } => "language_missing",
            Self::Late { .. } => "language_not_ready",
            Self::Broken { .. } => "language_broken",
        }
    }

    /// When the same request may succeed, if it may.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Late { retry_after_ms, .. } => Some(*retry_after_ms),
            Self::Unknown { .. } | Self::Missing { .. } | Self::Broken { .. } => None,
        }
    }

    /// What to do next.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unknown { known, .. } => format!("use one of {known}"),
            Self::Late { .. } => "try again later, or use another language".to_owned(),
            Self::Missing { .. } | Self::Broken { .. } => {
                "use another language, or ask the operator to run `palisade doctor`".to_owned()
            }
        }
    }

    /// The error for an interpreter that is probed again after this pause.
    pub(super) fn in_time(self, pause: Duration) -> Self {
        match self {
            Self::Late { title, reason, .. } => {
                let retry_after_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).max(1);
                Self::Late { title, reason, retry_after_ms }
            }
            other => other,
        }
    }
}
