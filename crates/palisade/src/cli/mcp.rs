//! `palisade mcp`: one client on standard input and output.

use std::io::IsTerminal;
use std::process::ExitCode;

use engine::Durability;

use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;

pub(crate) fn main(options: &Options) -> ExitCode {
    if std::io::stdin().is_terminal() {
        eprintln!(
            "palisade: waiting for an MCP client on standard input; a client starts this command itself"
        );
    }
    let serve = |machine: Machine| async move { ::mcp::serve_stdio(machine.runs(Durability::Behind)).await };
    match machine::with_engine(options, ServerMode::Stdio, serve).and_then(|served| served) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(reason = %error, "not_started");
            ExitCode::from(terminal::OWN_FAILURE)
        }
    }
}
