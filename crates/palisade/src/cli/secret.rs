//! `palisade secret`: keeps, lists and removes secrets of the state directory. No command prints a value.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use engine::access::{SECRET_BYTES_MAX, SecretError, Secrets};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use terminal::{BAD_USAGE, complain};

use crate::options::Options;
use crate::{config, state};

const FAILED: u8 = 1;
const EXAMPLES: &str = "\
Examples:
  palisade secret set github < token.txt
  gh auth token | palisade secret set github

The value is read from standard input; a final line end is not part of it. Runs get it where the
configuration says so: [access.NAME] secrets = { GITHUB_TOKEN = \"github\" }";

/// Arguments of `secret`.
#[derive(Debug, Args)]
pub(crate) struct SecretArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep a secret, read from standard input
    #[command(after_help = EXAMPLES)]
    Set {
        /// Its name: 1 to 64 of A-Z a-z 0-9 . _ -
        name: String,
    },
    /// List the names of the secrets
    List,
    /// Remove a secret
    Rm {
        /// Its name
        name: String,
    },
}

pub(crate) fn main(options: &Options, arguments: &SecretArguments) -> ExitCode {
    // Only the owner can access files created from here on.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    match work(options, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_mistake =
                matches!(error, SecretError::Name(_) | SecretError::Unfit(_) | SecretError::Missing(_));
            let message = match &error {
                SecretError::Io(cause) => format!("{error}: {cause}"),
                error => error.to_string(),
            };
            complain(&message, None);
            ExitCode::from(if is_mistake { BAD_USAGE } else { FAILED })
        }
    }
}

fn work(options: &Options, arguments: &SecretArguments) -> Result<(), SecretError> {
    let loaded = config::load(options).map_err(io::Error::other)?;
    let secrets = Secrets::new(&state::directory(loaded.settings.state_dir.value.as_deref())?);
    match &arguments.verb {
        Verb::Set { name } => {
            let value = read_value()?;
            secrets.set(name, value.strip_suffix('\n').unwrap_or(&value))
        }
        Verb::List => {
            let mut out = io::stdout().lock();
            for name in secrets.list()? {
                writeln!(out, "{name}")?;
            }
            Ok(())
        }
        Verb::Rm { name } => secrets.remove(name),
    }
}

/// Reads the value from standard input. On a terminal it is one line, and is not shown.
fn read_value() -> Result<String, SecretError> {
    let input = io::stdin();
    if !input.is_terminal() {
        let mut value = String::new();
        // One byte more shows that it is too long.
        input.lock().take(SECRET_BYTES_MAX as u64 + 2).read_to_string(&mut value)?;
        return Ok(value);
    }
    eprint!("value: ");
    let before = tcgetattr(&input).map_err(io::Error::from)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Now, &hidden).map_err(io::Error::from)?;
    let mut value = String::new();
    let read = input.read_line(&mut value);
    tcsetattr(&input, OptionalActions::Now, &before).map_err(io::Error::from)?;
    eprintln!();
    read?;
    Ok(value)
}
