//! Builds the result of a run from its end. Runs in fresh and in persistent sandboxes share this code.

use policy::Clamp;
use sandbox::{Outcome, Usage};
use wire::Exit;

use crate::display::Display;
use crate::driver::Done;
use crate::missing::Repair;
use crate::output::Output;
use crate::result::{Execution, RunError, RunResult, RunUsage, Value};
use crate::runtimes::Runtime;
use crate::verdict::End;
use crate::{advice, missing};

/// A run in progress.
pub(crate) struct Begun {
    pub(crate) backend: &'static str,
    pub(crate) clamped: Vec<Clamp>,
    pub(crate) warnings: Vec<String>,
    /// The execution as far as it is known.
    pub(crate) execution: Execution,
    /// How a package that is missing can be installed.
    pub(crate) repair: Repair,
}

/// Everything that is known when a run has ended.
pub(crate) struct Conclusion<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) end: End,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<RunError>,
    /// What the driver reports about the program's end.
    pub(crate) said: Done,
    /// The displays of the program, and messages about displays that were left out.
    pub(crate) shown: (Vec<Display>, Vec<String>),
    pub(crate) output: Output,
    pub(crate) usage: Usage,
}

impl Conclusion<'_> {
    /// Builds the result. `begun` holds what was known before the end: times, enforced guarantees, the
    /// compilation.
    pub(crate) fn into_result(self, begun: Begun) -> RunResult {
        let Self { runtime, end, outcome, error, said, shown, output, usage } = self;
        let Begun { backend, clamped, mut warnings, execution, repair } = begun;
        let exit = match end {
            End::Program(exit) => Some(exit),
            End::Compile(_) => Some(Exit::Code(1)),
            _ => None,
        };
        let advised = |message: &str| {
            let advice =
                (outcome == Outcome::Failed).then(|| advice::remedy(message, &output.stderr, &repair));
            advice.flatten().map(str::to_owned)
        };
        let error = error.map(|error| match said.error_message {
            Some(message) if matches!(outcome, Outcome::Failed | Outcome::CompileFailed) => RunError {
                remedy: missing::remedy(runtime, &message, &said.near_modules, &repair)
                    .or_else(|| advised(&message))
                    .or(error.remedy),
                message,
                line: said.error_line,
                column: said.error_column,
                cause: Some(error.message),
                ..error
            },
            _ => RunError { remedy: advised(&error.message).or(error.remedy), ..error },
        });
        let value = said.value_repr.map(|repr| Value {
            repr,
            json: said.value_json.and_then(|text| serde_json::from_str(&text).ok()),
            mime: said.value_mime,
        });
        let usage = RunUsage {
            cpu_ms: usage.cpu_us as f64 / 1000.0,
            memory_peak_bytes: usage.memory_peak_bytes,
            processes_peak: usage.processes_peak,
            ..execution.usage
        };
        let Output { stdout, stderr, .. } = output;
        let (displays, left_out) = shown;
        warnings.extend(left_out);
        let execution = Execution { exit, stdout, stderr, value, displays, usage, ..execution };
        RunResult { error, clamped, warnings, ..RunResult::finished(outcome, backend, execution) }
    }
}
