//! `palisade sandbox exec`: runs a program in a persistent sandbox.

use std::io::{self, Read};
use std::process::ExitCode;

use clap::Args;
use engine::RunError;
use serde_json::json;

use super::interrupt::Interrupts;
use super::live::{self, Show};
use super::print_json;
use crate::cli::program::{Program, ProgramArguments, ProgramOrigin, unreadable};
use crate::cli::run::environment_variable;
use crate::cli::screen::ControlSequences;
use crate::cli::time::parse_time_ms;
use crate::client::{Client, ClientError};
use terminal::{BAD_USAGE, complain};

const USAGE: &str = "palisade sandbox exec [OPTIONS] <ID> <LANG> [FILE|-] [ARGS]...
       palisade sandbox exec [OPTIONS] <ID> <LANG> -c <CODE> [ARGS]...";

const AFTER_HELP: &str = "\
Examples:
  palisade sandbox exec sbx_... python -c 'x = 40 + 2'
  palisade sandbox exec sbx_... python script.py one two
  echo 'echo $PWD' | palisade sandbox exec sbx_... bash -
  palisade sandbox exec -i analysis python -c 'print(len(input()))' < data.txt    by name, with standard input

Output is shown as it comes; bytes that are no UTF-8 are shown as \\xNN. On a terminal, control characters are
shown as text such as ^[; --raw lets them through. The program's standard input is empty without -i.
Ctrl-C cancels the run; the sandbox and what is in it stay.
Exit status: the program's own; 128+N when signal N ended it; and
  122  output limit        123  memory, disk or process limit
  124  timed out           125  Palisade itself failed, or no server runs
  126  refused             130  interrupted";

/// Arguments of `exec`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
pub(crate) struct ExecArguments {
    /// The sandbox: its id or its name; ID#NAME runs in a further interpreter there, made by first use
    #[arg(value_name = "ID")]
    id: String,
    /// Language of the program
    #[arg(value_name = "LANG")]
    language: String,
    #[command(flatten)]
    program: ProgramArguments,
    /// Pass standard input of this command to the program, read to its end first
    #[arg(short = 'i', long = "stdin")]
    takes_stdin: bool,
    /// Set an environment variable of the program, for this run (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Let control sequences of the program reach the terminal
    #[arg(long)]
    raw: bool,
    /// Wall-clock limit, for example 500ms, 5s, 2m, 1h; a number without a unit is seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms)]
    timeout: Option<u64>,
    /// Print the whole result as JSON instead of the program's streams
    #[arg(long)]
    json: bool,
}

pub(super) async fn exec(client: &Client, arguments: &ExecArguments) -> Result<ExitCode, ClientError> {
    let (Program { code, args, origin }, stdin) = match read(arguments) {
        Ok(read) => read,
        Err(error) => {
            complain(&error.message, error.remedy.as_deref());
            return Ok(ExitCode::from(BAD_USAGE));
        }
    };
    drop(origin);
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
    if let Some(stdin) = stdin {
        asked["stdin"] = json!(stdin);
    }
    let mut interrupts = Interrupts::new()?;
    let show =
        if arguments.json { Show::Nothing } else { Show::Live(ControlSequences::of_raw(arguments.raw)) };
    let ended = live::run(client, asked, show, &mut interrupts).await?;
    match show {
        Show::Nothing => print_json(&ended.result),
        Show::Live(_) => ended.explain(),
    }
    Ok(ended.exit_code())
}

/// The program, and the text for its standard input.
fn read(arguments: &ExecArguments) -> Result<(Program, Option<String>), RunError> {
    let program = arguments.program.read(&arguments.language)?;
    if !arguments.takes_stdin {
        return Ok((program, None));
    }
    if program.origin == ProgramOrigin::Stdin {
        let error = RunError::new("bad_stdin", "standard input is the program already");
        return Err(error.remedy("give the program as FILE or -c CODE"));
    }
    let mut bytes = Vec::new();
    let limit = engine::INPUT_BYTES_MAX as u64 + 1;
    let read = io::stdin().lock().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| unreadable("bad_stdin", "standard input", &error))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let error = RunError::new("bad_stdin", "standard input is not UTF-8 text");
        error.remedy("copy it into the sandbox with `palisade sandbox cp` and read the file")
    })?;
    Ok((program, Some(text)))
}
