//! `palisade mcp`: one client on standard input and output.
//!
//! ```text
//! start -> serving -> (end of input | broken output | signal) -> every run killed -> answers out -> exit 0
//! ```

use std::sync::Arc;
use std::time::Duration;

use engine::{Runs, Stop};
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

use super::Server;
use super::transport::{self, Lines};
use crate::signals::{OnHangup, Signals};

/// Maximum time for the remaining work once the shutdown has begun.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Serves these runs on standard input and output until the client disconnects or a signal asks for the end.
pub async fn serve_stdio(runs: Arc<Runs>) -> std::io::Result<()> {
    let (ending, mut ended) = watch::channel(None);
    let mut signals = Signals::new(OnHangup::End)?;
    let (read, write) = stdio_pipes();
    let lines = Lines::new(read, write, ending.clone(), input_has_hung_up);
    let server = Server::new(Arc::clone(&runs), ended.clone());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), backend = server.engine.backend().name(), "started");
    let opened = tokio::select! {
        opened = server.serve(lines) => opened,
        () = signals.end() => {
            tracing::info!(reason = "signal", "stopped");
            return Ok(());
        }
    };
    let Ok(running) = opened else {
        tracing::info!(reason = "the client left before it began", "stopped");
        return Ok(());
    };
    let cancel = running.cancellation_token();
    let served = running.waiting();
    tokio::pin!(served);
    let (reason, is_over) = tokio::select! {
        _ = &mut served => ("the client left", true),
        _ = ended.wait_for(Option::is_some) => ("the client left", false),
        () = signals.end() => ("signal", false),
    };
    transport::end(&ending, Stop::Killed);
    let why = (*ended.borrow()).unwrap_or(Stop::Killed);
    runs.shutdown(why, END_PATIENCE).await;
    // From here on only answers that are being written delay the exit.
    cancel.cancel();
    let is_clean = is_over || tokio::time::timeout(END_PATIENCE, served).await.is_ok();
    tracing::info!(reason, answers_out = is_clean, "stopped");
    Ok(())
}

/// Whether the other end of standard input is closed, even while input is unread (poll(2)).
fn input_has_hung_up() -> bool {
    let stdin = rustix::stdio::stdin();
    let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    let mut wanted = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut wanted, Some(&at_once)).is_ok_and(|ready| ready > 0) && wanted[0].revents().intersects(gone)
}
