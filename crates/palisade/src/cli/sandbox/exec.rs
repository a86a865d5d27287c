//! `palisade sandbox exec`: runs a program in a persistent sandbox.

use std::io::{self, Read};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::interrupt::Interrupts;
use super::live::{self, Show};
use super::print_json;
use crate::cli::run::{environment_variable, parse_time_ms};
use crate::client::{Client, ClientError};
use terminal::{BAD_USAGE, complain};

const AFTER_HELP: &str = "\
Examples:
  palisade sandbox exec sbx_... python -c 'x = 40 + 2'
  palisade sandbox exec sbx_... python script.py one two
  echo 'echo $PWD' | palisade sandbox exec sbx_... bash -

Output is shown as it comes; bytes that are no UTF-8 are shown as \\xNN. The program's standard input is empty.
Ctrl-C cancels the run; the sandbox and what is in it stay.
Exit status: the program's own; 128+N when signal N ended it; and
  122  output limit        123  memory, disk or process limit
  124  timed out           125  Palisade itself failed, or no server runs
  126  refused             130  interrupted";

/// Arguments of `exec`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ExecArguments {
    /// The sandbox
    #[arg(value_name = "ID")]
    id: String,
    /// Language of the program
    #[arg(value_name = "LANG")]
    language: String,
    /// File with the program, or - for standard input; with -c the first argument of the program
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// The program itself
    #[arg(short = 'c', value_name = "CODE")]
    code: Option<String>,
    /// Arguments of the program
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// Set an environment variable of the program, for this run (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Wall-clock limit: milliseconds, or for example 500ms, 10s, 2m
    #[arg(long, value_name = "MS", value_parser = time_ms)]
    timeout: Option<u64>,
    /// Print the whole result as JSON instead of the program's streams
    #[arg(long)]
    json: bool,
}

/// A number without a unit is milliseconds, as in the tool.
fn time_ms(text: &str) -> Result<u64, String> {
    text.parse::<u64>().or_else(|_| parse_time_ms(text))
}

pub(super) async fn exec(client: &Client, arguments: &ExecArguments) -> Result<ExitCode, ClientError> {
    let (code, args) = match program(arguments) {
        Ok(program) => program,
        Err(message) => {
            complain(&message, None);
            return Ok(ExitCode::from(BAD_USAGE));
        }
    };
    let mut asked = json!({ "language": arguments.language, "code": code, "sandbox_id": arguments.id });
    if !args.is_empty() {
        asked["args"] = json!(args);
    }
    for text in &arguments.environment {
        match environment_variable(text) {
            Ok((name, value)) => asked["variables"][name] = value,
            Err(error) => {
                complain(&error.message, error.remedy.as_deref());
                return Ok(ExitCode::from(BAD_USAGE));
            }
        }
    }
    if let Some(timeout) = arguments.timeout {
        asked["timeout_ms"] = json!(timeout);
    }
    let mut interrupts = Interrupts::new()?;
    let show = if arguments.json { Show::Nothing } else { Show::Live };
    let ended = live::run(client, asked, show, &mut interrupts).await?;
    match show {
        Show::Nothing => print_json(&ended.result),
        Show::Live => ended.explain(),
    }
    Ok(ended.exit_code())
}

/// The program and its arguments.
fn program(arguments: &ExecArguments) -> Result<(String, Vec<String>), String> {
    let mut args = arguments.args.clone();
    if let Some(code) = &arguments.code {
        args.splice(0..0, arguments.file.clone());
        return Ok((code.clone(), args));
    }
    let file = arguments.file.as_deref().ok_or("there is no program: give FILE, - or -c CODE")?;
    let mut bytes = Vec::new();
    let limit = engine::CODE_BYTES_MAX as u64 + 1;
    let read = match file {
        "-" => io::stdin().lock().take(limit).read_to_end(&mut bytes),
        _ => std::fs::File::open(file).and_then(|open| open.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|error| format!("{file} cannot be read: {error}"))?;
    let code = String::from_utf8(bytes).map_err(|_| format!("{file} is not UTF-8 text"))?;
    Ok((code, args))
}
