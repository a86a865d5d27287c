//! The signals that ask a server to end or to read its files again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What SIGHUP means to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHangup {
    /// Its terminal or its client is gone.
    End,
    /// An operator asks it to read its files again.
    Reload,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerSignal {
    /// This process must end.
    End,
    /// Its files must be read again.
    Reload,
}

/// Signals from a person or the system.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    on_hangup: OnHangup,
}

impl Signals {
    /// Listens from now on.
    pub fn new(on_hangup: OnHangup) -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            on_hangup,
        })
    }

    /// Completes with the next signal.
    pub async fn next(&mut self) -> ServerSignal {
        tokio::select! {
            _ = self.interrupt.recv() => ServerSignal::End,
            _ = self.terminate.recv() => ServerSignal::End,
            _ = self.hangup.recv() => match self.on_hangup {
                OnHangup::End => ServerSignal::End,
                OnHangup::Reload => ServerSignal::Reload,
            },
        }
    }

    /// Completes with the next signal that asks for the end.
    pub async fn end(&mut self) {
        while self.next().await != ServerSignal::End {}
    }
}
