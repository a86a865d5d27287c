//! The command line.

pub(crate) mod access;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod egress;
#[cfg(test)]
mod help_tests;
pub(crate) mod image;
mod inputs;
mod install_progress;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod packages;
pub(crate) mod policy;
mod program;
mod questions;
pub(crate) mod run;
pub(crate) mod sandbox;
mod save;
pub(crate) mod sbom;
mod screen;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod shell;
mod time;
pub(crate) mod tools;
mod tree;
mod words;

use std::ffi::OsString;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::options::Options;

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

/// The words of this process's command line, for clap. See [`sandbox::exec::separate_command`].
pub(crate) fn words_given() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if !words.iter().any(|word| word == "exec") {
        return words;
    }
    let mut command = Cli::command();
    command.build();
    let exec = command.find_subcommand("sandbox").and_then(|command| command.find_subcommand("exec"));
    let takes_value = |option: &str| {
        let is_it = |argument: &&clap::Arg| {
            let long = argument.get_long().map(|name| format!("--{name}"));
            let short = argument.get_short().map(|letter| format!("-{letter}"));
            long.as_deref() == Some(option) || short.as_deref() == Some(option)
        };
        let mut known = exec.into_iter().flat_map(clap::Command::get_arguments);
        known.find(is_it).is_some_and(|argument| argument.get_action().takes_values())
    };
    sandbox::exec::separate_command(words, takes_value)
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
    Serve(serve::ServeArguments),
    /// Open, use and close sandboxes of a running server
    Sandbox(sandbox::SandboxArguments),
    /// Talk to a sandbox of a running server, line by line
    Shell(shell::ShellArguments),
    /// Show what this machine can enforce and which languages work
    Doctor(DoctorArguments),
    /// Connect an MCP client: write Palisade into its configuration
    Setup(setup::SetupArguments),
    /// Measure this machine: fresh sandboxes beside the plain interpreter and other walls
    Bench(::bench::BenchArguments),
    /// Make, list, revoke and rotate keys for callers of `serve`
    Keys(keys::KeysArguments),
    /// Show the calls that wait for a human, and approve or deny them
    Approvals(approvals::ApprovalsArguments),
    /// Show what runs may reach outside, and try it
    Access(access::AccessArguments),
    /// Keep secrets that runs are given
    Secret(secret::SecretArguments),
    /// Show what runs reached outside
    Egress(egress::EgressArguments),
    /// Install packages ahead, list them, carry them to another machine, remove unused ones
    Packages(packages::PackagesArguments),
    /// The servers whose tools programs may call: add, import, find, accept
    Tools(tools::ToolsArguments),
    /// Check policies, and explain what they say about a call
    Policy(policy::PolicyArguments),
    /// Look at an image for the walls docker and podman
    Image(image::ImageArguments),
    /// Read, verify and export the record of calls
    Audit(audit::AuditArguments),
    /// Copy the state directory to a folder, while servers run
    Backup(backup::BackupArguments),
    /// Make a state directory of a backup
    Restore(backup::RestoreArguments),
    /// Print the inventory of this program: every crate that is compiled in (CycloneDX)
    Sbom,
    /// Show or check the configuration
    Config(crate::config::command::ConfigArguments),
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask the mirrors of packages whether they answer
    #[arg(long)]
    pub(crate) mirrors: bool,
    /// Examine this wall instead of the default one, or all
    #[arg(long, value_name = "NAME")]
    pub(crate) wall: Option<String>,
}
