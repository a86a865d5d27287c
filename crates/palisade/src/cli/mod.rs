//! The command line.

pub(crate) mod check;
pub(crate) mod run;
pub(crate) mod sandbox;
mod save;
pub(crate) mod shell;
mod terminal;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::terminal::{Paint, Spinner};

const AFTER_HELP: &str = "\
Examples:
  palisade run python -c 'print(6*7)'      one program, isolated, then gone
  palisade run bash script.sh a b          a file with arguments
  echo 'print(input())' | palisade run python -
  palisade check typescript main.ts        syntax and imports, without running it
  palisade shell                           a sandbox to talk to (with `palisade serve`)
  palisade doctor                          what this machine can enforce
  palisade bench --quick                   how fast it is, beside what else is installed
  palisade setup claude-code               connect an MCP client";

/// Runs code written by AI agents, safely and in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Where state is kept (or PALISADE_STATE_DIR)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Accept that a guarantee cannot be enforced here (repeatable; see `palisade doctor`)
    #[arg(long = "allow-missing", global = true, value_name = "GUARANTEE")]
    pub(crate) allow_missing: Vec<String>,
    /// How much is logged: error, warn, info, debug or trace (or PALISADE_LOG)
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one in the whole process")]
pub(crate) enum Command {
    /// Run one program in a fresh sandbox
    Run(run::RunArguments),
    /// Look at a program without running it
    Check(check::CheckArguments),
    /// Serve MCP on standard input and output, as a client starts it
    Mcp,
    /// Serve MCP over HTTP, for several callers
    Serve(crate::serve::options::ServeArguments),
    /// Open, use and close sandboxes of a running server
    Sandbox(sandbox::SandboxArguments),
    /// Talk to a sandbox of a running server, line by line
    Shell(shell::ShellArguments),
    /// Show what this machine can enforce and which languages work
    Doctor(DoctorArguments),
    /// Connect an MCP client: write Palisade into its configuration
    Setup(crate::setup::SetupArguments),
    /// Measure this machine: fresh sandboxes beside the plain interpreter and other walls
    Bench(crate::bench::BenchArguments),
    /// Show or check the configuration
    Config(crate::config::command::ConfigArguments),
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
