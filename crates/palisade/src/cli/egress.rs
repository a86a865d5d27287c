//! `palisade egress`: what runs reached outside, and what they were refused.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use engine::access::{LoggedReach, ReachLog};
use mcp::render::timestamp;
use terminal::complain;

use crate::options::Options;
use crate::{config, state};

const FAILED: u8 = 1;
const LINES: usize = 50;

/// Arguments of `egress`.
#[derive(Debug, Args)]
pub(crate) struct EgressArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the newest connections and refusals, oldest first
    Log {
        /// How many
        #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = LINES)]
        lines: usize,
        /// Print them as JSON, one on each line
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(options: &Options, arguments: &EgressArguments) -> ExitCode {
    let Verb::Log { lines, json } = &arguments.verb;
    match log(options, *lines) {
        Ok(found) => {
            let mut out = std::io::stdout().lock();
            for one in found {
                let text = if *json { serde_json::to_string(&one).unwrap_or_default() } else { line(&one) };
                if writeln!(out, "{text}").is_err() {
                    break;
                }
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            complain(&message, None);
            ExitCode::from(FAILED)
        }
    }
}

fn log(options: &Options, lines: usize) -> Result<Vec<LoggedReach>, String> {
    let loaded = config::load(options).map_err(|error| error.to_string())?;
    let state_dir =
        state::directory(loaded.settings.state_dir.value.as_deref()).map_err(|error| error.to_string())?;
    ReachLog::read(&state_dir, lines).map_err(|error| format!("the record cannot be read: {error}"))
}

fn line(one: &LoggedReach) -> String {
    let reached = &one.reached;
    let address = reached.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
    let run = one.run_id.as_deref().unwrap_or("-");
    terminal::plain(&format!(
        "{} {} {} {}{address} out {} in {} {}",
        timestamp(one.at_ms),
        one.principal,
        run,
        reached.host,
        reached.bytes_out,
        reached.bytes_in,
        reached.verdict
    ))
}
