//! A run's result as text for a model: the program's output, and the error if there is one.
//!
//! The structured content is the complete result. The text mentions only deviations from an ordinary run.

use engine::packages::PackageVersion;
use engine::{APPROVAL_DENIED, APPROVAL_REQUIRED, Execution, RunError, RunResult};
use sandbox::Outcome;
use wire::Exit;

use crate::render;

/// The text mentions a run time or queue time above this.
const NOTABLE_MS: f64 = 1000.0;

/// The text block of a run's result.
pub(crate) fn of_run(result: &RunResult, inline_bytes_max: usize) -> String {
    let mut parts = Vec::new();
    if result.outcome != Outcome::Completed {
        parts.push(headline(result));
    }
    let Execution { stdout, stderr, value, displays, .. } = result.execution();
    let stdout = render::text(stdout, inline_bytes_max);
    let stderr = render::text(stderr, inline_bytes_max);
    let has_labels = !stderr.is_empty() || result.outcome != Outcome::Completed;
    if !stdout.is_empty() {
        parts.push(labelled(if has_labels { "stdout" } else { "" }, &stdout));
    }
    if !stderr.is_empty() {
        parts.push(labelled("stderr", &stderr));
    }
    if let Some(value) = value {
        parts.push(format!("value: {}", render::text(value.repr.as_bytes(), inline_bytes_max)));
    }
    match &result.error {
        // The first line already says how the run ended; the language's own error message is new information.
        Some(error) if result.outcome == Outcome::Failed => {
            let is_news = error.cause.is_some() || error.line.is_some() || error.remedy.is_some();
            parts.extend(is_news.then(|| of_error(&RunError { cause: None, ..error.clone() })));
        }
        Some(error) => parts.push(of_error(error)),
        None => {}
    }
    parts.extend(notes(result));
    match parts.is_empty() && displays.is_empty() {
        true => "completed without output".to_owned(),
        false => parts.join("\n"),
    }
}

/// An error in one or two lines.
pub(crate) fn of_error(error: &RunError) -> String {
    let place = match (error.line, error.column) {
        (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
        (Some(line), None) => format!(" (line {line})"),
        _ => String::new(),
    };
    let text = format!("error: {}{place}", error.message);
    with_advice(text, error)
}

/// A refusal by policy. Clients of other gateways know the beginning of its first line.
pub(crate) fn of_denial(error: &RunError) -> String {
    let kind = match error.code.as_str() {
        APPROVAL_REQUIRED => "APPROVAL REQUIRED",
        APPROVAL_DENIED => "APPROVAL DENIED",
        _ => "POLICY DENIED",
    };
    with_advice(format!("[{kind}] {}", error.message), error)
}

fn with_advice(mut text: String, error: &RunError) -> String {
    if let Some(cause) = error.cause.as_ref().filter(|cause| **cause != error.message) {
        text.push_str(&format!("\ncause: {cause}"));
    }
    if let Some(remedy) = &error.remedy {
        text.push_str(&format!("\nremedy: {remedy}"));
    }
    if let Some(ms) = error.retry_after_ms {
        text.push_str(&format!("\ntry again after {ms} ms"));
    }
    text
}

/// Packages with their versions, bounded.
pub(crate) fn packages(packages: &[PackageVersion]) -> String {
    /// Packages that a text names.
    const TOLD_MAX: usize = 30;
    let named = packages.iter().take(TOLD_MAX).map(|one| format!("{} {}", one.name, one.version));
    let named = named.collect::<Vec<_>>().join(", ");
    match packages.len().saturating_sub(TOLD_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn headline(result: &RunResult) -> String {
    let how = match result.execution().exit {
        Some(Exit::Code(code)) => format!(" (exit status {code})"),
        Some(Exit::Signal(signal)) => format!(" ({})", render::killed_by(signal)),
        None => String::new(),
    };
    format!("outcome: {}{how}", result.outcome.name())
}

fn labelled(label: &str, text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    if label.is_empty() { text.to_owned() } else { format!("{label}:\n{text}") }
}

fn notes(result: &RunResult) -> Vec<String> {
    let clamped = result.clamped.iter();
    let mut notes: Vec<String> = clamped
        .map(|clamp| format!("note: {} is {}, not {} as asked", clamp.limit, clamp.given, clamp.asked))
        .collect();
    if let Some(ms) = result.install_ms {
        notes.push(format!("note: installed {} ({:.1} s)", packages(&result.packages), ms / 1000.0));
    }
    notes.extend(result.warnings.iter().map(|warning| format!("warning: {warning}")));
    let usage = &result.execution().usage;
    if usage.wall_ms >= NOTABLE_MS {
        notes.push(format!("took {:.1} s", usage.wall_ms / 1000.0));
    }
    if usage.queued_ms >= NOTABLE_MS {
        notes.push(format!("waited {:.1} s for a place", usage.queued_ms / 1000.0));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Value;

    fn result(outcome: Outcome, execution: Execution) -> RunResult {
        RunResult::finished(outcome, "fake", execution)
    }

    #[test]
    fn a_plain_success_is_its_output_alone() {
        let of_completed = |execution| of_run(&result(Outcome::Completed, execution), 100);
        assert_eq!(of_completed(Execution::default()), "completed without output");
        let stdout = b"hi\n".to_vec();
        assert_eq!(of_completed(Execution { stdout: stdout.clone(), ..Execution::default() }), "hi");
        let value = Some(Value { repr: "42".to_owned(), json: None, mime: None });
        assert_eq!(of_completed(Execution { stdout, value, ..Execution::default() }), "hi\nvalue: 42");
    }

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let (stdout, stderr) = (b"out".to_vec(), b"err\n".to_vec());
        let execution = Execution { exit: Some(Exit::Code(3)), stdout, stderr, ..Execution::default() };
        let mut run = result(Outcome::Failed, execution);
        run.warnings = vec!["careful".to_owned()];
        let error =
            RunError { line: Some(2), column: Some(5), ..RunError::new("failed", "wrong").remedy("repair") };
        run.error = Some(error);
        let wanted = "outcome: failed (exit status 3)\nstdout:\nout\nstderr:\nerr\nerror: wrong (line 2, column 5)\nremedy: repair\nwarning: careful";
        assert_eq!(of_run(&run, 100), wanted);
    }
}
