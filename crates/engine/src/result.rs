//! What became of a run, before anybody renders it.

use std::borrow::Cow;
use std::sync::LazyLock;

use policy::Clamp;
use sandbox::{Enforced, Enforcement, Guarantee, Mechanism, Outcome, StartPhases};
use serde::{Deserialize, Serialize};
use wire::Exit;

use crate::sandboxes::SandboxId;
use crate::workspace::ChangedFile;

use crate::display::Display;

/// What became of a run.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, in words to act on.
    pub error: Option<RunError>,
    /// The wall that was asked for.
    pub backend: Cow<'static, str>,
    /// Limits asked for and not given.
    pub clamped: Vec<Clamp>,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// The persistent sandbox it belongs to, and what it did to the files there.
    pub lasting: Option<Lasting>,
    /// How far it came.
    pub phase: RunPhase,
}

/// How far a run came.
#[derive(Debug, Clone)]
pub enum RunPhase {
    /// Nothing of the caller's was executed.
    NotStarted,
    /// The program, or its compiler, was executed in a sandbox.
    Finished(Box<Execution>),
}

/// A program that was executed, up to its end.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    /// How the program ended, if it got that far by itself.
    pub exit: Option<Exit>,
    /// What it wrote, up to what is kept.
    pub stdout: Vec<u8>,
    /// The same for errors.
    pub stderr: Vec<u8>,
    /// The last expression.
    pub value: Option<Value>,
    /// What it showed besides: figures, tables, drawings. The program's own words, like the value.
    pub displays: Vec<Display>,
    /// Files it made or changed, when asked for.
    pub artifacts: Vec<Artifact>,
    /// What it used.
    pub usage: RunUsage,
    /// What the wall enforced; empty for a run whose server ended.
    pub enforced: Enforced,
    /// How long the parts of building the sandbox took.
    pub phases: StartPhases,
    /// How a compiled program came about.
    pub compile: Option<BuildReport>,
}

/// A place that outlives the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lasting {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Files that were made or changed.
    pub files: Vec<ChangedFile>,
}

/// How a compiled program came about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Whether an earlier compilation of the very same program was used.
    pub cached: bool,
    /// How long compiling took, its sandbox included.
    pub ms: f64,
}

/// The last expression of a program, as the program tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// As the language shows it.
    pub repr: String,
    /// As JSON, where it is representable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<serde_json::Value>,
    /// Its kind, if it is more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
}

/// A file of the workspace after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Relative to the workspace.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// What a run used, measured by the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunUsage {
    /// From the program's start to its end.
    pub wall_ms: f64,
    /// Processor time of all processes.
    pub cpu_ms: f64,
    /// Highest memory use.
    pub memory_peak_bytes: u64,
    /// Highest number of processes and threads.
    pub processes_peak: u64,
    /// Waiting for a place.
    pub queued_ms: f64,
    /// Building the sandbox.
    pub start_ms: f64,
}

/// Something went wrong: what, why, and what to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// Stable.
    pub code: String,
    /// What happened.
    pub message: String,
    /// Line in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RunError {
    /// An error with a code and a message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }

    /// The same with what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// A bad argument: `bad_<argument>`.
    pub(crate) fn bad(argument: &str, message: &str, remedy: &str) -> Self {
        Self::new(&format!("bad_{argument}"), message).remedy(remedy)
    }
}

impl RunResult {
    /// A request that was refused before any engine saw it.
    pub fn refused(error: RunError) -> Self {
        Self::not_started(Outcome::Refused, "none", error)
    }

    /// A run of which nothing was executed.
    pub fn not_started(outcome: Outcome, backend: &'static str, error: RunError) -> Self {
        Self {
            outcome,
            error: Some(error),
            backend: Cow::Borrowed(backend),
            clamped: Vec::new(),
            warnings: Vec::new(),
            lasting: None,
            phase: RunPhase::NotStarted,
        }
    }

    /// A run of which nothing but this is known; so are those of tests.
    pub fn finished(outcome: Outcome, backend: &'static str, execution: Execution) -> Self {
        let phase = RunPhase::Finished(Box::new(execution));
        Self { error: None, phase, ..Self::not_started(outcome, backend, RunError::default()) }
    }

    /// What was executed; empty for a run that did not start.
    pub fn execution(&self) -> &Execution {
        static NOTHING: LazyLock<Execution> = LazyLock::new(Execution::default);
        match &self.phase {
            RunPhase::NotStarted => &NOTHING,
            RunPhase::Finished(execution) => execution,
        }
    }

    /// Whether a control group kept that promise.
    pub fn enforced_by_cgroup(&self, guarantee: Guarantee) -> bool {
        let enforcement = self.execution().enforced.get(guarantee);
        matches!(enforcement, Enforcement::By { mechanisms, .. } if mechanisms.contains(&Mechanism::Cgroup))
    }
}
