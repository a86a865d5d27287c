//! Palisade: runs code written by AI agents, safely and in milliseconds.
//!
//! `main` selects the role or command of this process and starts it. A command that creates sandboxes forks
//! its spawner first, before any thread exists ([`machine`]).

mod cli;
mod client;
mod config;
mod die_with_parent;
mod doctor;
mod log;
mod machine;
mod options;
mod state;
mod static_guest;
mod tools;
mod upkeep;
mod walls;
mod zygote;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    // The guest starts this role inside a sandbox. The role only reads a program.
    let mut arguments = std::env::args().skip(1);
    if upstreams::broker::command::is_called() {
        return upstreams::broker::command::main();
    }
    if arguments.next().as_deref() == Some(syntax::role::NAME) {
        return syntax::role::main(&arguments.collect::<Vec<_>>());
    }
    let take_role = || {
        let role = die_with_parent::take_role().or_else(upstreams::supervisor::take_role);
        role.or_else(mcp::manifest::take_role).or_else(service::take_openapi_role)
    };
    if let Some(status) = take_role() {
        return status;
    }
    let cli = Cli::parse_from(cli::words_given());
    match cli.command {
        Command::Run(arguments) => cli::run::main(&cli.options, arguments),
        Command::Check(arguments) => cli::check::main(&cli.options, &arguments),
        Command::Mcp => cli::mcp::main(&cli.options),
        Command::Serve(arguments) => cli::serve::main(&cli.options, arguments),
        Command::Sandbox(arguments) => cli::sandbox::main(&cli.options, arguments),
        Command::Shell(arguments) => cli::shell::main(&cli.options, &arguments),
        Command::Doctor(arguments) => doctor::main(&cli.options, &arguments),
        Command::Setup(arguments) => {
            setup::main(setup::UserFolders { home: state::home(), config: state::config_home() }, &arguments)
        }
        Command::Bench(arguments) => cli::bench::main(&cli.options, &arguments),
        Command::Keys(arguments) => cli::keys::main(&cli.options, arguments),
        Command::Approvals(arguments) => cli::approvals::main(&cli.options, arguments),
        Command::Access(arguments) => cli::access::main(&cli.options, &arguments),
        Command::Secret(arguments) => cli::secret::main(&cli.options, &arguments),
        Command::Egress(arguments) => cli::egress::main(&cli.options, &arguments),
        Command::Packages(arguments) => cli::packages::main(&cli.options, &arguments),
        Command::Tools(arguments) => cli::tools::main(&cli.options, arguments),
        Command::Policy(arguments) => cli::policy::main(&cli.options, &arguments),
        Command::Image(arguments) => cli::image::main(&cli.options, &arguments),
        Command::Audit(arguments) => cli::audit::main(&cli.options, &arguments),
        Command::Backup(arguments) => cli::backup::back_up(&cli.options, &arguments),
        Command::Restore(arguments) => cli::backup::restore(&cli.options, &arguments),
        Command::Sbom => cli::sbom::main(),
        Command::Config(arguments) => config::command::main(&cli.options, &arguments),
    }
}
