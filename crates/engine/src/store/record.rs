//! A run as the store keeps it, and back.

use std::borrow::Cow;

use policy::Clamp;
use sandbox::{Enforced, Outcome, StartPhases};
use serde::{Deserialize, Serialize};
use wire::Exit;

use crate::result::{BuildReport, Lasting, RunError, RunResult, RunUsage, Value};

/// A result without what has tables of its own. Phases are for measuring and are not kept.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<Exit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
    usage: RunUsage,
    backend: String,
    enforced: Enforced,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    clamped: Vec<Clamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compile: Option<BuildReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lasting: Option<Lasting>,
}

impl Record {
    pub(super) fn of(result: &RunResult) -> Self {
        Self {
            exit: result.exit,
            value: result.value.clone(),
            error: result.error.clone(),
            usage: result.usage,
            backend: result.backend.to_string(),
            enforced: result.enforced.clone(),
            clamped: result.clamped.clone(),
            warnings: result.warnings.clone(),
            compile: result.compile,
            lasting: result.lasting.clone(),
        }
    }

    /// A run that nobody can tell about any more.
    pub(super) fn lost(error: RunError) -> Self {
        Self::of(&RunResult::unstarted(Outcome::Killed, "none", error))
    }

    /// The result; what it wrote and left is still to be added.
    pub(super) fn into_result(self, outcome: Outcome) -> RunResult {
        RunResult {
            outcome,
            exit: self.exit,
            stdout: Vec::new(),
            stderr: Vec::new(),
            value: self.value,
            displays: Vec::new(),
            error: self.error,
            artifacts: Vec::new(),
            usage: self.usage,
            backend: Cow::Owned(self.backend),
            enforced: self.enforced,
            clamped: self.clamped,
            warnings: self.warnings,
            phases: StartPhases::default(),
            compile: self.compile,
            lasting: self.lasting,
        }
    }
}

/// What is said about a run whose server died.
pub(super) fn server_restarted() -> RunError {
    let message = "the server that ran it ended before the run did";
    RunError::new("server_restarted", message).remedy("run it again; what it wrote until then is in its log")
}

/// What is said about a run whose end could not be written down.
pub(super) fn record_lost() -> RunError {
    let message = "the run ended, but the store could not take its result";
    RunError::new("record_lost", message).remedy("run it again once the store works")
}
