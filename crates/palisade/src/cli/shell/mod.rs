//! `palisade shell`: a sandbox of a running server to talk to, line by line.
//!
//! ```text
//! (open a sandbox) -> prompt -> lines until a program is whole -> run, shown live -> value, error -> prompt ...
//!     Ctrl-C at the prompt: forgets the lines   while it runs: cancels the run, the state stays
//!     end of input, %quit, a signal             -> (close the sandbox)
//! ```
//! The terminal's own line editing is all there is. Without a terminal there are no prompts and no greetings.

mod block;
mod lines;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::block::{Block, Origin};
use super::sandbox::interrupt::{Interrupts, Wish};
use super::sandbox::live::{self, Ended, Show};
use super::sandbox::{self, OpenArguments, ServerChoice, failed, with_server};
use terminal::Paint;
use terminal::{INTERRUPTED, OWN_FAILURE, complain};

use crate::client::{Client, ClientError};
use crate::options::Options;

const AFTER_HELP: &str = "\
Examples:
  palisade shell                              a new sandbox, closed at the end
  palisade shell --keep --language bash       left open; its id is printed
  palisade shell sbx_...                      one that is open already
  palisade shell < session.py                 the same lines from a file

In the shell, %help says more. Exit status: 0; from a pipe that of the last program, as `palisade run` has it;
125 Palisade itself failed, or no server runs; 126 the server refused; 130 interrupted.";

const COMMANDS: &str = "\
%lang NAME   speak another language; each keeps its own state, all share the files
%files       the files in /workspace
%help        this
%quit        the end (or Ctrl-D)
A line that ends in `:` wants more lines until an empty one; open brackets, texts and here-documents until they are closed.
Ctrl-C ends a program that runs and keeps the sandbox; at the prompt it forgets what was typed.";

const CONTINUED: &str = "... ";

/// Arguments of `shell`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    server: ServerChoice,
    /// A sandbox that is open [default: a new one]
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
        let language = arguments.language.clone();
        let mut shell = Shell {
            client: client.clone(),
            sandbox_id: sandbox_id.clone(),
            language,
            origin,
            interrupts,
            status: ExitCode::SUCCESS,
        };
        let ended = shell.converse().await;
        if is_ours {
            // It may be gone already, and so may the server: then there is nothing to close.
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
    /// Of the last program.
    status: ExitCode,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    On,
    Over,
}

impl Shell {
    async fn converse(&mut self) -> Result<ExitCode, ClientError> {
        if self.origin == Origin::Terminal {
            say(&Paint::for_stream(&io::stderr()).dim("%help says what can be done here"));
        }
        let mut lines = lines::read();
        let mut block = Block::new(self.origin);
        loop {
            self.prompt(&block);
            let line = tokio::select! {
                biased;
                wish = self.interrupts.next() => {
                    if wish == Wish::End || self.origin == Origin::Pipe {
                        return Ok(ExitCode::from(INTERRUPTED));
                    }
                    say("");
                    block.take();
                    continue;
                }
                line = lines.recv() => line,
            };
            let program = match line.transpose() {
                Ok(Some(line)) if block.is_empty() && line.trim_start().starts_with('%') => {
                    match self.command(line.trim()).await? {
                        Next::On => continue,
                        Next::Over => return Ok(self.end()),
                    }
                }
                Ok(Some(line)) if block.size_bytes() + line.len() > engine::CODE_BYTES_MAX => {
                    complain("the program is longer than a program may be; it was forgotten", None);
                    block.take();
                    continue;
                }
                Ok(Some(line)) => block.add(&self.language, &line),
                Ok(None) => return self.last(block.take()).await,
                Err(error) => {
                    complain(&format!("standard input cannot be read: {error}"), None);
                    return Ok(ExitCode::from(OWN_FAILURE));
                }
            };
            if let Some(program) = program
                && self.run(&program, &mut lines).await? == Next::Over
            {
                return Ok(self.end());
            }
        }
    }

    /// What was begun when the input ended is run from a pipe, and forgotten at a terminal.
    async fn last(&mut self, program: String) -> Result<ExitCode, ClientError> {
        if self.origin == Origin::Terminal {
            say("");
        } else if !program.trim().is_empty() {
            let (_, mut none) = mpsc::channel(1);
            self.run(&program, &mut none).await?;
        }
        Ok(self.end())
    }

    fn end(&self) -> ExitCode {
        if self.origin == Origin::Terminal { ExitCode::SUCCESS } else { self.status }
    }

    fn prompt(&self, block: &Block) {
        if self.origin == Origin::Pipe {
            return;
        }
        let text = if block.is_empty() { format!("{}> ", self.language) } else { CONTINUED.to_owned() };
        let mut error = io::stderr().lock();
        // Whoever looks may have gone; the end of the input tells.
        error.write_all(text.as_bytes()).and_then(|()| error.flush()).ok();
    }

    async fn run(
        &mut self,
        program: &str,
        lines: &mut mpsc::Receiver<io::Result<String>>,
    ) -> Result<Next, ClientError> {
        let asked = json!({ "language": self.language, "code": program, "sandbox_id": self.sandbox_id });
        let ended = live::run(&self.client, asked, Show::Live, &mut self.interrupts).await?;
        if let Some(value) = ended.0["value"]["repr"].as_str() {
            // Whoever reads us may have gone.
            writeln!(io::stdout().lock(), "{value}").ok();
        }
        ended.explain();
        self.status = ended.exit_code();
        if ended.outcome() == "cancelled" && self.origin == Origin::Terminal {
            // The terminal forgets what was typed before Ctrl-C; so does the shell.
            while lines.try_recv().is_ok() {}
        }
        Ok(if is_gone(&ended) { Next::Over } else { Next::On })
    }

    async fn command(&mut self, line: &str) -> Result<Next, ClientError> {
        let (word, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (word, argument.trim()) {
            ("%quit" | "%exit", "") => return Ok(Next::Over),
            ("%help", "") => say(COMMANDS),
            ("%files", "") => self.files().await?,
            ("%lang", "") => say(&self.language),
            ("%lang", name) => name.clone_into(&mut self.language),
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

/// A line for the person at the terminal, who may have gone.
fn say(text: &str) {
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Whether the sandbox is not there any more.
fn is_gone(ended: &Ended) -> bool {
    let code: &Value = &ended.0["error"]["code"];
    code == "unknown_sandbox"
}
