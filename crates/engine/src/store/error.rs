//! Errors of the store, with a remedy for each.

use rusqlite::ErrorCode;

use crate::result::RunError;

/// The delay before a retry of an error that may pass by itself.
const RETRY_MS: u64 = 1000;
/// The step named when the operating system could not read or write.
const DISK: &str = "the disk";

/// Why the store failed. A run is never the cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The database is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A newer version of Palisade wrote the database.
    #[error("the store was written by a newer Palisade: its layout is {found}, this program knows {known}")]
    TooNew {
        /// The layout of the database.
        found: i64,
        /// The newest layout that this version knows.
        known: i64,
    },
    /// The disk is full.
    #[error("the disk of the store is full")]
    Full,
    /// The database cannot be opened or written.
    #[error("the store cannot be opened or written: {0}")]
    ReadOnly(String),
    /// Another process holds the database, or too many requests wait.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// Any other error of the operating system or the database.
    #[error("the store failed at {step}: {cause}")]
    Failed {
        /// The operation that failed.
        step: &'static str,
        /// The error text.
        cause: String,
    },
    /// The store's thread has ended.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// A stable identifier of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Corrupt(_) => "store_corrupt",
            Self::TooNew { .. } => "store_too_new",
            Self::Full => "store_full",
            Self::ReadOnly(_) => "store_readonly",
            Self::Busy(_) => "store_busy",
            Self::Failed { .. } => "store_failed",
            Self::Closed => "store_closed",
        }
    }

    /// What to do next.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Corrupt(_) => {
                "stop every Palisade that uses this state directory, then restore its folder `store` from a backup or \
                 move it aside; nothing is ever deleted by itself"
            }
            Self::TooNew { .. } => "use the newer program again, or give this one another --state-dir",
            Self::Full => "free space on the disk of the state directory, or keep less (retention)",
            Self::ReadOnly(_) => {
                "make the state directory writable for this user, or give another --state-dir"
            }
            Self::Busy(_) => "try again",
            Self::Failed { .. } => {
                "look at the disk of the state directory; `palisade doctor` examines the machine"
            }
            Self::Closed => "start the server again",
        }
    }

    /// Whether the same request may succeed a moment later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Full | Self::Failed { .. })
    }

    /// The error for a caller: what happened and what to do, without details of the machine.
    pub fn to_run_error(&self) -> RunError {
        let message = match self {
            Self::Corrupt(_) => "the server's store is damaged",
            Self::TooNew { .. } => "the server's store was written by a newer version",
            Self::Full => "the disk of the server's store is full",
            Self::ReadOnly(_) => "the server's store cannot be written",
            Self::Busy(_) => "the server's store is busy",
            Self::Failed { .. } => "the server's store failed",
            Self::Closed => "the server is shutting down",
        };
        let mut error = RunError::new(self.code(), message).remedy(self.remedy());
        error.retryable = self.is_retryable();
        error.retry_after_ms = error.retryable.then_some(RETRY_MS);
        error
    }

    pub(crate) fn io(step: &'static str) -> impl Fn(std::io::Error) -> Self {
        use std::io::ErrorKind;
        move |error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied | ErrorKind::NotADirectory => {
                Self::ReadOnly(format!("{step}: {error}"))
            }
            _ => Self::Failed { step, cause: error.to_string() },
        }
    }

    pub(crate) fn sql(step: &'static str) -> impl Fn(rusqlite::Error) -> Self {
        move |error| {
            let cause = error.to_string();
            match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(cause),
                Some(ErrorCode::DiskFull) => Self::Full,
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                    Self::ReadOnly(cause)
                }
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(cause),
                Some(ErrorCode::SystemIoFailure) => Self::Failed { step: DISK, cause },
                _ => Self::Failed { step, cause },
            }
        }
    }

    /// Whether other requests will fail with it as well.
    pub(super) fn is_lasting(&self) -> bool {
        self.spoils_connection() || *self == Self::Full
    }

    /// Whether the connection must be opened again.
    pub(super) fn spoils_connection(&self) -> bool {
        matches!(
            self,
            Self::Corrupt(_) | Self::TooNew { .. } | Self::ReadOnly(_) | Self::Failed { step: DISK, .. }
        )
    }
}
