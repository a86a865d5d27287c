//! The end of a run put into its result: the same for a fresh sandbox and one that lasts.

use sandbox::{Outcome, Usage};
use wire::Exit;

use crate::display::Display;
use crate::driver::Done;
use crate::output::Output;
use crate::result::{RunError, RunResult, RunUsage, Value};
use crate::verdict::End;

/// Everything known when a run is over.
pub(crate) struct Conclusion {
    pub(crate) end: End,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<RunError>,
    /// What the program says about itself.
    pub(crate) said: Done,
    /// What it showed, and what of that was left out.
    pub(crate) shown: (Vec<Display>, Vec<String>),
    pub(crate) output: Output,
    pub(crate) usage: Usage,
}

impl Conclusion {
    /// Fills a result; times and warnings that it has already stay.
    pub(crate) fn fill(self, result: &mut RunResult) {
        let Self { end, outcome, error, said, shown, output, usage } = self;
        result.outcome = outcome;
        result.exit = match end {
            End::Program(exit) => Some(exit),
            End::Compile(_) => Some(Exit::Code(1)),
            _ => None,
        };
        (result.stdout, result.stderr) = (output.stdout, output.stderr);
        result.displays = shown.0;
        result.warnings.extend(shown.1);
        result.error = error.map(|error| match said.error_message {
            Some(message) if matches!(outcome, Outcome::Failed | Outcome::CompileFailed) => RunError {
                message,
                line: said.error_line,
                column: said.error_column,
                cause: Some(error.message),
                ..error
            },
            _ => error,
        });
        result.value = said.value_repr.map(|repr| Value {
            repr,
            json: said.value_json.and_then(|text| serde_json::from_str(&text).ok()),
            mime: said.value_mime,
        });
        result.usage = RunUsage {
            cpu_ms: usage.cpu_us as f64 / 1000.0,
            memory_peak_bytes: usage.memory_peak_bytes,
            processes_peak: usage.processes_peak,
            ..result.usage
        };
    }
}
