//! What a person at the terminal, or the system, wishes while we wait.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Ctrl-C: what is under way shall end.
    Interrupt,
    /// This process shall end.
    End,
}

/// All wishes from now on.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Signals no longer end this process by themselves.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next wish; safe to drop.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::Interrupt,
            _ = self.terminate.recv() => Wish::End,
            _ = self.hangup.recv() => Wish::End,
        }
    }
}
