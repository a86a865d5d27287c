//! `palisade shell`: runs programs interactively, line by line, in a sandbox of a running server.
//!
//! ```text
//! (open a sandbox) -> prompt -> lines until a program is complete -> run, shown live -> value, error -> prompt ...
//!     a program that waits for input gets the next line, at a terminal
//!     Ctrl-C at the prompt: discards the lines  while it runs: cancels the run, the state stays
//!     end of input, %quit, a signal             -> (close the sandbox)
//! ```
//! Rustyline edits lines at a terminal with cursor control (`TERM`). Without a terminal there are no prompts
//! and no greeting.

mod block;
mod editor;
mod input;
mod lines;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use self::block::Origin;
use self::input::{Input, Typed};
use super::sandbox::attached::Attached;
use super::sandbox::interrupt::{Interrupts, Wish};
use super::sandbox::live::{self, Ended, Show};
use super::sandbox::{self, OpenArguments, ServerChoice, failed, with_server};
use crate::cli::screen::{ControlSequences, Screen};
use terminal::Paint;
use terminal::{INTERRUPTED, OWN_FAILURE, complain};

use crate::client::{Client, ClientError};
use crate::options::Options;
use wire::Stream;

const AFTER_HELP: &str = "\
Examples:
  palisade shell                              a new sandbox, closed at the end
  palisade shell --keep --language bash       left open; its id is printed
  palisade shell sbx_...                      one that is open already
  palisade shell sbx_...#test                 a further interpreter there, with variables of its own
  palisade shell < session.py                 the same lines from a file

In the shell, %help says more. Exit status: 0; from a pipe that of the last program, as `palisade run` has it;
125 Palisade itself failed, or no server runs; 126 the server refused; 130 interrupted.";

const COMMANDS: &str = "\
%lang NAME   speak another language; each keeps its own state, all share the files
%files       the files in /workspace
%stdin TEXT  a line that the next program reads, for example with input(); without it, a program at a terminal gets what you
             type while it waits for input, and a program from a pipe has none
%help        this
%quit        the end (or Ctrl-D)
A line that ends in `:` wants more lines until an empty one; open brackets, texts and here-documents until they are closed.
Ctrl-C ends a program that runs and keeps the sandbox; at the prompt it forgets what was typed.
Up and Ctrl-R find earlier lines (kept in the state directory; not those that begin with a blank), Tab completes commands.";

/// Names of the shell's commands.
const COMMAND_NAMES: [&str; 5] = ["%files", "%help", "%lang", "%quit", "%stdin"];

/// Arguments of `shell`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    server: ServerChoice,
    /// A sandbox that is open, by id or name; ID#NAME: a further interpreter there [default: a new sandbox]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// The language to begin with
    #[arg(long, value_name = "LANG", default_value = "python")]
    language: String,
    /// Leave a new sandbox open at the end
    #[arg(long, conflicts_with = "id")]
    keep: bool,
}

pub(crate) fn main(options: &Options, arguments: &ShellArguments) -> ExitCode {
    with_server(options, &arguments.server, async |client| {
        let interrupts = Interrupts::new()?;
        let origin = if io::stdin().is_terminal() { Origin::Terminal } else { Origin::Pipe };
        let sandbox_id = match &arguments.id {
            Some(id) => id.clone(),
            None => {
                let opened = sandbox::open(&client, &OpenArguments::default()).await?;
                sandbox::id_of(&opened)?.to_owned()
            }
        };
        if origin == Origin::Terminal || arguments.keep {
            say(&Paint::for_stream(&io::stderr()).dim(&format!("sandbox {sandbox_id}")));
        }
        let is_ours = arguments.id.is_none() && !arguments.keep;
        // An unknown language is reported by the first run.
        let language = ::mcp::languages::canonical(&arguments.language).map(str::to_owned);
        let language = language.unwrap_or_else(|_| arguments.language.clone());
        let mut shell = Shell {
            client: client.clone(),
            sandbox_id: sandbox_id.clone(),
            language,
            origin,
            interrupts,
            stdin: String::new(),
            status: ExitCode::SUCCESS,
        };
        let history = arguments.server.state_dir(&client).and_then(editor::history_file);
        let ended = shell.converse(Input::new(origin, history)).await;
        if is_ours {
            // The sandbox or the server may already be gone; then there is nothing to close.
            client.tool("sandbox_close", json!({ "sandbox_id": sandbox_id })).await.ok();
        }
        ended
    })
}

struct Shell {
    client: Client,
    sandbox_id: String,
    language: String,
    origin: Origin,
    interrupts: Interrupts,
    /// Standard input of the next program.
    stdin: String,
    /// Exit status of the last program.
    status: ExitCode,
}

/// Whether the shell continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    On,
    Over,
}

impl Shell {
    async fn converse(&mut self, mut input: Input) -> Result<ExitCode, ClientError> {
        if self.origin == Origin::Terminal {
            say(&Paint::for_stream(&io::stderr()).dim("%help says what can be done here"));
        }
        loop {
            let typed = tokio::select! {
                biased;
                wish = self.interrupts.next() => {
                    if wish == Wish::End || self.origin == Origin::Pipe {
                        return Ok(ExitCode::from(INTERRUPTED));
                    }
                    input.forget_block();
                    continue;
                }
                typed = input.next(&self.language) => typed,
            };
            let next = match typed {
                Ok(Typed::Nothing) => Next::On,
                Ok(Typed::Command(line)) => self.command(&line).await?,
                Ok(Typed::Program(program)) => self.run(&program, &mut input).await?,
                Ok(Typed::TooLong) => {
                    complain("the program is longer than a program may be; it was forgotten", None);
                    Next::On
                }
                Ok(Typed::End(program)) => return self.last(&program, &mut input).await,
                Err(error) => {
                    complain(&format!("standard input cannot be read: {error}"), None);
                    return Ok(ExitCode::from(OWN_FAILURE));
                }
            };
            if next == Next::Over {
                return Ok(self.end());
            }
        }
    }

    /// Handles the unfinished program at the end of the input: it runs from a pipe and is discarded at a
    /// terminal.
    async fn last(&mut self, program: &str, input: &mut Input) -> Result<ExitCode, ClientError> {
        if self.origin == Origin::Terminal {
            if !input.needs_own_line() {
                say("");
            }
        } else if !program.trim().is_empty() {
            self.run(program, input).await?;
        }
        Ok(self.end())
    }

    fn end(&self) -> ExitCode {
        if self.origin == Origin::Terminal { ExitCode::SUCCESS } else { self.status }
    }

    async fn run(&mut self, program: &str, input: &mut Input) -> Result<Next, ClientError> {
        let mut asked = json!({ "language": self.language, "code": program, "sandbox_id": self.sandbox_id });
        if !self.stdin.is_empty() {
            asked["stdin"] = json!(std::mem::take(&mut self.stdin));
        }
        let ended = self.follow(asked, input).await?;
        if let Some(value) = ended.result["value"]["repr"].as_str() {
            let mut screen = Screen::new(ControlSequences::MadeVisible);
            screen.show(Stream::Stdout, format!("{value}\n").as_bytes());
        } else if ended.is_line_open && input.needs_own_line() {
            say("");
        }
        ended.explain();
        self.status = ended.exit_code();
        if ended.outcome() == "cancelled" {
            input.forget_ahead();
        }
        Ok(if is_gone(&ended) { Next::Over } else { Next::On })
    }

    /// Runs a program and shows its output. At a terminal the lines that it waits for are read from there, unless the user
    /// gave some before.
    async fn follow(&mut self, asked: Value, input: &mut Input) -> Result<Ended, ClientError> {
        let show = Show::Live(ControlSequences::MadeVisible);
        let (client, interrupts) = (&self.client, &mut self.interrupts);
        if self.origin == Origin::Pipe || asked.get("stdin").is_some() {
            return live::run(client, asked, show, interrupts).await;
        }
        let begin = json!({ "arguments": asked, "input": "prompted" });
        let attached = Attached { client, begin, show, interrupts, sizes: None };
        let next_line = async |is_wanted: bool| match is_wanted {
            true => input.line().await,
            false => std::future::pending().await,
        };
        attached.run(next_line).await
    }

    async fn command(&mut self, line: &str) -> Result<Next, ClientError> {
        let (word, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (word, argument.trim()) {
            ("%quit" | "%exit", "") => return Ok(Next::Over),
            ("%help", "") => say(COMMANDS),
            ("%files", "") => self.files().await?,
            ("%stdin", text) => {
                self.stdin.push_str(text);
                self.stdin.push('\n');
            }
            ("%lang", "") => say(&self.language),
            ("%lang", name) => match ::mcp::languages::canonical(name) {
                Ok(language) => language.clone_into(&mut self.language),
                Err(error) => complain(&error.message, error.remedy.as_deref()),
            },
            _ => complain(&format!("{word} is no command here"), Some("%help shows them")),
        }
        Ok(Next::On)
    }

    async fn files(&self) -> Result<(), ClientError> {
        let asked = json!({ "sandbox_id": self.sandbox_id, "recursive": true });
        let answer = match self.client.tool("list_files", asked).await {
            Ok(answer) => answer,
            Err(error @ (ClientError::Refused { .. } | ClientError::Protocol(_))) => {
                failed(&error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut out = io::stdout().lock();
        for entry in answer["entries"].as_array().into_iter().flatten() {
            let path = terminal::plain(entry["path"].as_str().unwrap_or_default());
            let size = entry["size_bytes"].as_u64().map(|bytes| bytes.to_string()).unwrap_or_default();
            writeln!(out, "{size:>12}  {path}").ok();
        }
        if answer["complete"] == false {
            writeln!(out, "(and more)").ok();
        }
        Ok(())
    }
}

/// Prints a line for the user; the terminal may be gone.
fn say(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether the sandbox no longer exists.
fn is_gone(ended: &Ended) -> bool {
    let code: &Value = &ended.result["error"]["code"];
    code == "unknown_sandbox"
}
