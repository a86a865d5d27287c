//! `palisade sandbox exec`: runs a program in a persistent sandbox, or with `-t` a command on a terminal.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use engine::RunError;
use serde_json::{Value, json};

use super::attached::{Attached, own_stdin};
use super::interrupt::Interrupts;
use super::live::{self, Show};
use super::print_json;
use super::raw_terminal::{self, RawTerminal};
use crate::cli::program::{Program, ProgramArguments, ProgramOrigin};
use crate::cli::run::environment_variable;
use crate::cli::screen::ControlSequences;
use crate::cli::time::parse_time_ms;
use crate::client::{Client, ClientError};
use terminal::{BAD_USAGE, complain};

const USAGE: &str = "palisade sandbox exec [OPTIONS] <ID> <LANG> [FILE|-] [ARGS]...
       palisade sandbox exec [OPTIONS] <ID> <LANG> -c <CODE> [ARGS]...
       palisade sandbox exec -t [OPTIONS] <ID> <COMMAND> [ARGS]...";

const AFTER_HELP: &str = "\
Examples:
  palisade sandbox exec sbx_... python -c 'x = 40 + 2'
  palisade sandbox exec sbx_... python script.py one two
  echo 'echo $PWD' | palisade sandbox exec sbx_... bash -
  palisade sandbox exec -i analysis python -c 'print(len(input()))' < data.txt    by name, with standard input
  palisade sandbox exec -t analysis bash             a command on a terminal: bash, python3, vi, top, less

Output is shown as it comes; without -i and -t, bytes that are no UTF-8 are shown as \\xNN. On a terminal, control
characters are shown as text such as ^[; --raw lets them through. The program's standard input is empty without -i.
Ctrl-C cancels the run; the sandbox and what is in it stay.
With -t every key goes to the command, also Ctrl-C, and everything that it writes reaches your terminal unchanged: a
program that you do not trust can then send control sequences to it. The command sees the files of the sandbox, not the
variables and processes of earlier runs, and ends with its time limit (--timeout; the longest allowed if absent).
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
    /// Language of the program, or with -t the command
    #[arg(value_name = "LANG")]
    language: String,
    #[command(flatten)]
    program: ProgramArguments,
    /// Pass standard input of this command to the program, as it comes
    #[arg(short = 'i', long = "stdin")]
    takes_stdin: bool,
    /// Run a command on a terminal instead of a program in a language
    #[arg(short = 't', long = "tty", conflicts_with_all = ["json", "code"])]
    is_terminal: bool,
    /// Set an environment variable of the program, for this run (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Let the program reach what the server's configuration names so (repeatable)
    #[arg(long, value_name = "NAME")]
    access: Vec<String>,
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
    let asked = match arguments.asked() {
        Ok(asked) => asked,
        Err(error) => {
            complain(&error.message, error.remedy.as_deref());
            return Ok(ExitCode::from(BAD_USAGE));
        }
    };
    if arguments.is_terminal {
        return on_terminal(client, arguments, asked).await;
    }
    let mut interrupts = Interrupts::new()?;
    let show =
        if arguments.json { Show::Nothing } else { Show::Live(ControlSequences::of_raw(arguments.raw)) };
    let ended = if arguments.takes_stdin {
        let begin = json!({ "arguments": asked, "input": "stream" });
        let mut stdin = own_stdin();
        let attached = Attached { client, begin, show, interrupts: &mut interrupts, sizes: None };
        attached.run(async |_| stdin.recv().await).await?
    } else {
        live::run(client, asked, show, &mut interrupts).await?
    };
    match show {
        Show::Nothing => print_json(&ended.result),
        Show::Live(_) => ended.explain(),
    }
    Ok(ended.exit_code())
}

/// Runs a command on a terminal of the sandbox. This command's terminal is its screen and keyboard.
async fn on_terminal(
    client: &Client,
    arguments: &ExecArguments,
    asked: Value,
) -> Result<ExitCode, ClientError> {
    let mut interrupts = Interrupts::new()?;
    let sizes = Some(raw_terminal::sizes()?);
    let size = raw_terminal::size();
    let Ok(terminal) = RawTerminal::new() else {
        complain("-t needs a terminal at standard input and output", Some("leave -t out, or give -i"));
        return Ok(ExitCode::from(BAD_USAGE));
    };
    let begin = json!({
        "arguments": asked,
        "input": "stream",
        "terminal": {
            "command": arguments.program.words(&arguments.language),
            "kind": std::env::var("TERM").unwrap_or_default(),
            "rows": size.rows,
            "columns": size.columns,
        },
    });
    let show = Show::Live(ControlSequences::Obeyed);
    let mut stdin = own_stdin();
    let attached = Attached { client, begin, show, interrupts: &mut interrupts, sizes };
    let ended = attached.run(async |_| stdin.recv().await).await;
    let is_own_end = ended.as_ref().is_ok_and(|ended| matches!(ended.outcome(), "completed" | "failed"));
    if !is_own_end {
        terminal.reset();
    }
    drop(terminal);
    let ended = ended?;
    ended.explain();
    Ok(ended.exit_code())
}

impl ExecArguments {
    /// The arguments of the tool `run`.
    fn asked(&self) -> Result<Value, RunError> {
        let mut asked = json!({ "sandbox_id": self.id });
        if self.is_terminal {
            (asked["language"], asked["code"]) = (json!("bash"), json!(":"));
        } else {
            let Program { code, args, origin } = self.program.read(&self.language)?;
            if self.takes_stdin && origin == ProgramOrigin::Stdin {
                let error = RunError::new("bad_stdin", "standard input is the program already");
                return Err(error.remedy("give the program as FILE or -c CODE"));
            }
            (asked["language"], asked["code"]) = (json!(self.language), json!(code));
            if !args.is_empty() {
                asked["args"] = json!(args);
            }
        }
        for text in &self.environment {
            let (name, value) = environment_variable(text)?;
            asked["variables"][name] = value;
        }
        if !self.access.is_empty() {
            asked["access"] = json!(self.access);
        }
        if let Some(timeout) = self.timeout {
            asked["timeout_ms"] = json!(timeout);
        }
        Ok(asked)
    }
}

/// Inserts `--` before the command of `sandbox exec -t`, so that options behind it are the command's. `takes_value` says
/// whether the next word belongs to an option.
pub(crate) fn separate_command(words: Vec<OsString>, takes_value: impl Fn(&str) -> bool) -> Vec<OsString> {
    let (mut positions, mut is_terminal) = (Vec::new(), false);
    let mut index = 1;
    while index < words.len() && positions.len() < POSITIONS {
        let word = words[index].to_string_lossy();
        if word == "--" {
            return words;
        }
        match word.strip_prefix('-') {
            None | Some("") => positions.push(index),
            Some(option) => {
                let is_long = option.starts_with('-');
                is_terminal |=
                    if is_long { option == "-tty" } else { is_cluster(option) && option.contains('t') };
                index += usize::from(!word.contains('=') && takes_value(&word));
            }
        }
        index += 1;
    }
    let is_exec = positions.first().is_some_and(|at| words[*at] == "sandbox")
        && positions.get(1).is_some_and(|at| words[*at] == "exec");
    match positions.get(POSITIONS - 1) {
        Some(at) if is_exec && is_terminal => {
            let mut words = words;
            words.insert(*at, "--".into());
            words
        }
        _ => words,
    }
}

/// `sandbox`, `exec`, the id, and the command.
const POSITIONS: usize = 4;

/// Whether short options without a value were written together.
fn is_cluster(option: &str) -> bool {
    option.chars().all(|letter| "it".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let separated =
            separate_command(words, |option| ["--env", "--timeout", "--socket"].contains(&option));
        separated.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_behind_the_command_of_a_terminal_are_the_commands() {
        for (given, wanted) in [
            ("palisade sandbox exec -t x ls -la", "palisade sandbox exec -t x -- ls -la"),
            ("palisade sandbox exec -it x bash -c a", "palisade sandbox exec -it x -- bash -c a"),
            (
                "palisade sandbox exec --timeout 5s x --tty vi -R",
                "palisade sandbox exec --timeout 5s x --tty -- vi -R",
            ),
            ("palisade --socket=s sandbox exec x -ti vi", "palisade --socket=s sandbox exec x -ti -- vi"),
        ] {
            assert_eq!(separated(given), wanted);
        }
        for same in [
            "palisade sandbox exec x python -c 1",
            "palisade sandbox exec -i x python -t",
            "palisade sandbox exec -t x -- ls -la",
            "palisade sandbox exec -t x",
            "palisade run -t python exec x y",
            "palisade sandbox exec --env -t x python a.py",
        ] {
            assert_eq!(separated(same), same);
        }
    }
}
