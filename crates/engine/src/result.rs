//! The result of a run, independent of how a front end renders it.

use std::borrow::Cow;
use std::sync::LazyLock;

use policy::Clamp;
use sandbox::{Enforced, Enforcement, Guarantee, Mechanism, Outcome, StartPhases};
use serde::{Deserialize, Serialize};
use wire::Exit;

use crate::access::{Reached, ToolsUse};
use crate::packages::{InstallReport, PackageVersion};
use crate::sandboxes::{ContextName, SandboxId};
use crate::workspace::ChangedFile;

use crate::display::Display;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// How the run ended.
    pub outcome: Outcome,
    /// What went wrong and what the caller can do about it.
    pub error: Option<RunError>,
    /// The name of the backend that was asked for.
    pub backend: Cow<'static, str>,
    /// Limits that the caller asked for and the policy reduced.
    pub clamped: Vec<Clamp>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// What the run reached outside, or was refused; empty for a run without access.
    pub egress: Vec<Reached>,
    /// The packages that the program could import, besides those of the host. Empty for a run without packages.
    pub packages: Vec<PackageVersion>,
    /// How long their installation took before the run; `None` if nothing had to be installed.
    pub install_ms: Option<f64>,
    /// What the run called of other servers' tools; `None` for a run without them.
    pub tools: Option<ToolsUse>,
    /// The persistent sandbox of the run, and the files that the run changed there.
    pub lasting: Option<Lasting>,
    /// The packages, if the run was an installation.
    pub installed: Option<InstallReport>,
    /// Whether the run executed anything.
    pub phase: RunPhase,
}

/// Whether a run executed anything.
#[derive(Debug, Clone)]
pub enum RunPhase {
    /// No code of the caller was executed.
    NotStarted,
    /// The program, or its compiler, was executed in a sandbox.
    Finished(Box<Execution>),
}

/// A program that was executed and has ended.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    /// How the program exited, if it exited by itself.
    pub exit: Option<Exit>,
    /// Standard output, up to the output limit.
    pub stdout: Vec<u8>,
    /// Standard error, up to the output limit.
    pub stderr: Vec<u8>,
    /// The value of the last expression.
    pub value: Option<Value>,
    /// Figures, tables and drawings that the program displayed. The program supplies them, as it does the
    /// value.
    pub displays: Vec<Display>,
    /// Files that the run created or changed, if the caller asked for them.
    pub artifacts: Vec<Artifact>,
    /// The resources that the run used.
    pub usage: RunUsage,
    /// The guarantees that the backend enforced. Empty for a run whose server ended during the run.
    pub enforced: Enforced,
    /// How long each part of building the sandbox took.
    pub phases: StartPhases,
    /// How the program was compiled, if the language is compiled.
    pub compile: Option<BuildReport>,
}

/// The persistent sandbox in which a run took place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lasting {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The context, unless it is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextName>,
    /// Files that the run created or changed.
    pub files: Vec<ChangedFile>,
}

/// How a program was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Whether the build cache supplied an earlier compilation of the same program.
    pub cached: bool,
    /// How long the compilation took, including its sandbox.
    pub ms: f64,
}

/// The value of a program's last expression, as the program reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The representation that the language prints.
    pub repr: String,
    /// The value as JSON, if JSON can represent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<serde_json::Value>,
    /// The MIME type, if the value is more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

/// A file in the workspace after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The path relative to the workspace.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// The resources that a run used, measured by the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunUsage {
    /// Time from the program's start to its end.
    pub wall_ms: f64,
    /// Processor time of all processes.
    pub cpu_ms: f64,
    /// Highest memory use.
    pub memory_peak_bytes: u64,
    /// Highest number of processes and threads.
    pub processes_peak: u64,
    /// Time spent waiting for admission.
    pub queued_ms: f64,
    /// Time spent building the sandbox.
    pub start_ms: f64,
}

/// An error: what failed, why, and what to do next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// A stable identifier of the error.
    pub code: String,
    /// What happened.
    pub message: String,
    /// The line in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Why it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The rule of a policy that refused the call, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The approval that the call needs, or that was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<crate::gatekeeper::ApprovalId>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How long to wait before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RunError {
    /// Creates an error with a code and a message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// An error about a bad argument, with the code `bad_<argument>`.
    pub(crate) fn bad(argument: &str, message: &str, remedy: &str) -> Self {
        Self::new(&format!("bad_{argument}"), message).remedy(remedy)
    }
}

impl RunResult {
    /// The result of a request that was refused before it reached an engine.
    pub fn refused(error: RunError) -> Self {
        Self::not_started(Outcome::Refused, "none", error)
    }

    /// The result of a run that executed nothing.
    pub fn not_started(outcome: Outcome, backend: &'static str, error: RunError) -> Self {
        Self {
            outcome,
            error: Some(error),
            backend: Cow::Borrowed(backend),
            clamped: Vec::new(),
            warnings: Vec::new(),
            egress: Vec::new(),
            packages: Vec::new(),
            install_ms: None,
            tools: None,
            lasting: None,
            installed: None,
            phase: RunPhase::NotStarted,
        }
    }

    /// The result of an execution of which nothing else is known. Tests also build their results with it.
    pub fn finished(outcome: Outcome, backend: &'static str, execution: Execution) -> Self {
        let phase = RunPhase::Finished(Box::new(execution));
        Self { error: None, phase, ..Self::not_started(outcome, backend, RunError::default()) }
    }

    /// The execution. It is empty for a run that did not start.
    pub fn execution(&self) -> &Execution {
        static NOTHING: LazyLock<Execution> = LazyLock::new(Execution::default);
        match &self.phase {
            RunPhase::NotStarted => &NOTHING,
            RunPhase::Finished(execution) => execution,
        }
    }

    /// Whether a control group enforced that guarantee.
    pub fn enforced_by_cgroup(&self, guarantee: Guarantee) -> bool {
        let enforcement = self.execution().enforced.get(guarantee);
        matches!(enforcement, Enforcement::By { mechanisms, .. } if mechanisms.contains(&Mechanism::Cgroup))
    }
}
