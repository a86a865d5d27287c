//! `palisade check`: reports errors of a program without running it.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use engine::{Caller, RunError, Validation};

use terminal::{OWN_FAILURE, REFUSED, complain};

use super::{program, words};
use crate::machine::{self, ServerMode};
use crate::options::Options;

const EXIT_CODES: &str = "\
Exit status: 0 when nothing is wrong, 1 when something is, 125 when Palisade itself failed, 126 when it refused.
Modules that are missing are told, and are no error: a file may come with the run.";

const WRONG: u8 = 1;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CheckArguments {
    /// Language of the program
    #[arg(value_name = "LANG")]
    language: String,
    /// File with the program, or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "code")]
    file: Option<String>,
    /// The program itself
    #[arg(short = 'c', value_name = "CODE", conflicts_with = "file")]
    code: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(options: &Options, arguments: &CheckArguments) -> ExitCode {
    let code = match read(arguments) {
        Ok(code) => code,
        Err(error) => return fail(&error, OWN_FAILURE),
    };
    let language = match ::mcp::languages::canonical(&arguments.language) {
        Ok(language) => language,
        Err(error) => return fail(&error, REFUSED),
    };
    let answer = machine::with_engine(options, ServerMode::OneShot, |machine| async move {
        machine.engine.validate(&Caller::local(), &policy::WallDemand::default(), language, &code).await
    });
    match answer {
        Ok(Ok(validation)) => {
            if arguments.json {
                print_json(&validation)
            } else {
                print(&validation, language)
            }
            if validation.valid { ExitCode::SUCCESS } else { ExitCode::from(WRONG) }
        }
        Ok(Err(error)) => fail(&error, REFUSED),
        Err(error) => fail(&RunError::new("failed", error.to_string()), OWN_FAILURE),
    }
}

fn read(arguments: &CheckArguments) -> Result<String, RunError> {
    match &arguments.code {
        Some(code) => Ok(code.clone()),
        None => program::read_text(arguments.file.as_deref().unwrap_or("-")),
    }
}

fn print_json(validation: &Validation) {
    let text = serde_json::to_string_pretty(validation).unwrap_or_default();
    // The reader of standard output may be gone.
    writeln!(io::stdout().lock(), "{text}").ok();
}

fn print(validation: &Validation, language: &str) {
    let mut out = io::stdout().lock();
    let place = |line: Option<u32>, column: Option<u32>| match (line, column) {
        (Some(line), Some(column)) => format!("{line}:{column}: "),
        (Some(line), None) => format!("{line}: "),
        _ => String::new(),
    };
    for error in &validation.errors {
        writeln!(out, "{}{}", place(error.line, error.column), error.message).ok();
    }
    for missing in &validation.missing_imports {
        let (place, remedy) = (place(missing.line, None), words::of_command_line(&missing.remedy));
        writeln!(out, "{place}module `{}` is not there: {remedy}", missing.module).ok();
    }
    for note in &validation.notes {
        writeln!(out, "note: {note}").ok();
    }
    if validation.valid {
        writeln!(out, "the syntax is valid {language}").ok();
    }
}

fn fail(error: &RunError, status: u8) -> ExitCode {
    let cause = error.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let message = words::of_command_line(&format!("{}{cause}", error.message));
    complain(&message, error.remedy.as_deref().map(words::of_command_line).as_deref());
    ExitCode::from(status)
}
