//! How a run ended.
//!
//! A failing program is an outcome, never an error of the server. The engine determines the outcome from what
//! the host measured; see `engine::verdict`.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program succeeded.
    Completed,
    /// The program's exit status or signal reports a failure.
    Failed,
    /// The program did not compile.
    CompileFailed,
    /// The run reached its wall-clock or processor time limit.
    TimedOut,
    /// The memory limit ended the program.
    OutOfMemory,
    /// The program failed while its disk was full.
    DiskFull,
    /// The program failed at the limit of processes.
    ProcessLimit,
    /// The program wrote more output than the limit.
    OutputLimit,
    /// An operator, the closing of its sandbox or a shutdown ended the run.
    Killed,
    /// The caller ended the run.
    Cancelled,
    /// The run is still active.
    Running,
    /// The request was refused; nothing ran.
    Refused,
    /// The run cannot start now, but may later.
    Unavailable,
}

impl Outcome {
    /// Every outcome.
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

    /// The outcome with that name.
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
