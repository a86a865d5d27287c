//! `palisade mcp`: one client on standard input and output.
//!
//! ```text
//! start -> serving -> (end of input | broken output | signal) -> every run killed -> answers out -> exit 0
//! ```

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::{Durability, Stop};
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tokio::sync::watch;

use super::Server;
use super::transport::{self, Lines};
use crate::log::{self, LogLevel};
use crate::machine::{self, Machine, ServerMode};
use crate::options::Options;
use crate::signals::Signals;

/// What is left may take this long once the end has begun.
const END_PATIENCE: Duration = Duration::from_secs(2);
const OWN_FAILURE: u8 = 125;

pub(crate) fn main(options: &Options) -> ExitCode {
    if std::io::stdin().is_terminal() {
        eprintln!(
            "palisade: waiting for an MCP client on standard input; a client starts this command itself"
        );
    }
    let served = machine::with_engine(options, ServerMode::Stdio, serve).and_then(|served| served);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::line(LogLevel::Error, "not_started", &[("reason", json!(error.to_string()))]);
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn serve(machine: Machine) -> std::io::Result<()> {
    let (ending, mut ended) = watch::channel(None);
    let mut signals = Signals::new()?;
    let (read, write) = stdio_pipes();
    let lines = Lines::new(read, write, ending.clone(), input_has_hung_up);
    let runs = machine.runs(Durability::Behind);
    let server = Server::new(Arc::clone(&runs), ended.clone());
    let fields =
        [("version", json!(env!("CARGO_PKG_VERSION"))), ("backend", json!(server.engine.backend().name()))];
    log::line(LogLevel::Info, "started", &fields);
    let opened = tokio::select! {
        opened = server.serve(lines) => opened,
        () = signals.next() => {
            log::line(LogLevel::Info, "stopped", &[("reason", json!("signal"))]);
            return Ok(());
        }
    };
    let Ok(running) = opened else {
        log::line(LogLevel::Info, "stopped", &[("reason", json!("the client left before it began"))]);
        return Ok(());
    };
    let cancel = running.cancellation_token();
    let served = running.waiting();
    tokio::pin!(served);
    let (reason, is_over) = tokio::select! {
        _ = &mut served => ("the client left", true),
        _ = ended.wait_for(Option::is_some) => ("the client left", false),
        () = signals.next() => ("signal", false),
    };
    transport::end(&ending, Stop::Killed);
    let why = (*ended.borrow()).unwrap_or(Stop::Killed);
    runs.shutdown(why, END_PATIENCE).await;
    // From here on only answers that are on their way keep us.
    cancel.cancel();
    let is_clean = is_over || tokio::time::timeout(END_PATIENCE, served).await.is_ok();
    log::line(LogLevel::Info, "stopped", &[("reason", json!(reason)), ("answers_out", json!(is_clean))]);
    Ok(())
}

/// Whether the other end of standard input is closed, whatever is still unread (poll(2)).
fn input_has_hung_up() -> bool {
    let stdin = rustix::stdio::stdin();
    let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    let mut wanted = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut wanted, Some(&at_once)).is_ok_and(|ready| ready > 0) && wanted[0].revents().intersects(gone)
}
