//! Converts a run to its stored record and back, for `rows`.

use std::borrow::Cow;

use policy::Clamp;
use sandbox::{Enforced, Outcome};
use serde::{Deserialize, Serialize};
use wire::Exit;

use crate::access::{Reached, ToolsUse};
use crate::audit::RunProof;
use crate::packages::{InstallReport, PackageVersion};
use crate::result::{BuildReport, Execution, Lasting, RunError, RunPhase, RunResult, RunUsage, Value};

/// A result without the parts that have separate tables. Phases serve measurements and are not stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unstarted: bool,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    egress: Vec<Reached>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    packages: Vec<PackageVersion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    install_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<ToolsUse>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lasting: Option<Lasting>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    installed: Option<InstallReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<RunProof>,
}

impl Record {
    pub(super) fn of(result: &RunResult) -> Self {
        let execution = result.execution();
        Self {
            is_unstarted: matches!(result.phase, RunPhase::NotStarted),
            exit: execution.exit,
            value: execution.value.clone(),
            error: result.error.clone(),
            usage: execution.usage,
            backend: result.backend.to_string(),
            enforced: execution.enforced.clone(),
            clamped: result.clamped.clone(),
            warnings: result.warnings.clone(),
            compile: execution.compile,
            egress: result.egress.clone(),
            packages: result.packages.clone(),
            install_ms: result.install_ms,
            tools: result.tools.clone(),
            lasting: result.lasting.clone(),
            installed: result.installed.clone(),
            proof: None,
        }
    }

    /// Adds what the receipt of the run needs.
    pub(super) fn with_proof(mut self, proof: Option<&RunProof>) -> Self {
        self.proof = proof.cloned();
        self
    }

    pub(super) fn take_proof(&mut self) -> Option<RunProof> {
        self.proof.take()
    }

    /// The record of a run of which only the log may be left.
    pub(super) fn lost(error: RunError) -> Self {
        let lost = RunResult::finished(Outcome::Killed, "none", Execution::default());
        Self::of(&RunResult { error: Some(error), ..lost })
    }

    /// Converts the record to a result. The caller adds output and artifacts.
    pub(super) fn into_result(self, outcome: Outcome) -> RunResult {
        // Records of earlier versions do not contain this.
        let is_refused = matches!(outcome, Outcome::Refused | Outcome::Unavailable);
        let is_unstarted = self.is_unstarted || (is_refused && self.enforced == Enforced::default());
        let execution = || Execution {
            exit: self.exit,
            value: self.value,
            usage: self.usage,
            enforced: self.enforced,
            compile: self.compile,
            ..Execution::default()
        };
        let phase =
            if is_unstarted { RunPhase::NotStarted } else { RunPhase::Finished(Box::new(execution())) };
        RunResult {
            outcome,
            error: self.error,
            backend: Cow::Owned(self.backend),
            clamped: self.clamped,
            warnings: self.warnings,
            egress: self.egress,
            packages: self.packages,
            install_ms: self.install_ms,
            tools: self.tools,
            lasting: self.lasting,
            installed: self.installed,
            phase,
        }
    }
}

/// The error for a run whose server died.
pub(super) fn server_restarted() -> RunError {
    let message = "the server that ran it ended before the run did";
    RunError::new("server_restarted", message).remedy("run it again; what it wrote until then is in its log")
}

/// The error for a run whose end could not be stored.
pub(super) fn record_lost() -> RunError {
    let message = "the run ended, but the store could not take its result";
    RunError::new("record_lost", message).remedy("run it again once the store works")
}
