//! How a run ended, in the words of the contract.
//!
//! A failing program is an outcome, never an error of ours. The engine decides it from what the host
//! measured; see `engine::verdict`.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program succeeded.
    Completed,
    /// The program's own exit status or signal says it failed.
    Failed,
    /// The program did not compile.
    CompileFailed,
    /// Wall-clock or processor time was used up.
    TimedOut,
    /// The memory limit ended it.
    OutOfMemory,
    /// It failed with its disk full.
    DiskFull,
    /// It failed at the limit of processes.
    ProcessLimit,
    /// It wrote more than is kept.
    OutputLimit,
    /// An operator, a close or a shutdown ended it.
    Killed,
    /// The caller ended it.
    Cancelled,
    /// It is still running.
    Running,
    /// The request was refused; nothing ran.
    Refused,
    /// It cannot run now, but may later.
    Unavailable,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Completed,
        Self::Failed,
        Self::CompileFailed,
        Self::TimedOut,
        Self::OutOfMemory,
        Self::DiskFull,
        Self::ProcessLimit,
        Self::OutputLimit,
        Self::Killed,
        Self::Cancelled,
        Self::Running,
        Self::Refused,
        Self::Unavailable,
    ];

    /// The outcome of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::CompileFailed => "compile_failed",
            Self::TimedOut => "timed_out",
            Self::OutOfMemory => "out_of_memory",
            Self::DiskFull => "disk_full",
            Self::ProcessLimit => "process_limit",
            Self::OutputLimit => "output_limit",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::Running => "running",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }

    /// Whether a client should treat the result as an error.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Completed | Self::Running)
    }
}
