//! The first messages to the guest, sent all at once: the files, then the order that needs them.
//!
//! The host does not wait for an answer. If the guest cannot place a file, it reports that and drops the order.

use sandbox::WORKSPACE;
use wire::{Fork, OpenProcess, ToGuest, WindowSize};

use super::{Conversation, MAIN, Mode, PREPARE, State};
use crate::driver::{self, DriverDecoder};
use crate::guest_client::GuestError;
use crate::runtimes::Preparing;

/// A process that starts after the lease, never as a copy of a zygote process.
pub(crate) struct StartedProcess {
    pub(crate) process: u32,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Whether it is a driver.
    pub(crate) has_channel: bool,
    /// The size of its terminal, if it has one.
    pub(crate) terminal: Option<WindowSize>,
}

/// A program in the hands of the preparer.
pub(crate) struct Preparation {
    pub(super) how: Preparing,
    /// The order for the driver once the program is prepared.
    pub(super) order: Vec<u8>,
    /// The order for a program that the preparer refused, where preparing is optional. `None` means the same
    /// order.
    pub(super) order_as_it_is: Option<Vec<u8>>,
    pub(super) decoder: DriverDecoder,
}

impl Preparation {
    pub(crate) fn new(how: Preparing, order: Vec<u8>, order_as_it_is: Option<Vec<u8>>) -> Self {
        Self { how, order, order_as_it_is, decoder: DriverDecoder::default() }
    }
}

impl Conversation<'_> {
    /// Queues a file for the workspace.
    pub(crate) async fn place(&mut self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        self.channel.writer.put_file(self.placed, path, content).await
    }

    /// Queues the start of a program that has no driver.
    pub(crate) fn start(&mut self, argv: Vec<String>, env: Vec<(String, String)>) -> Result<(), GuestError> {
        self.open(StartedProcess { process: MAIN, argv, env, has_channel: false, terminal: None })
    }

    /// Queues the start of a process of a fresh sandbox, after the files.
    pub(crate) fn open(&mut self, started: StartedProcess) -> Result<(), GuestError> {
        let StartedProcess { process, argv, env, has_channel, terminal } = started;
        let (after, cwd, fork) = (self.placed, WORKSPACE.to_owned(), Fork::Never);
        let open = OpenProcess { process, after, argv, env, cwd, has_channel, fork, terminal };
        self.queue_after_files(ToGuest::Open(open))
    }

    /// Queues what the driver is given for its next run. Nothing is sent if that is nothing.
    pub(crate) fn give(&mut self, given: &[(String, String)]) -> Result<(), GuestError> {
        self.channel.writer.control(self.process, self.placed, &driver::given(given))
    }

    /// Queues the order for the driver.
    pub(crate) fn order(&mut self, order: Vec<u8>) -> Result<(), GuestError> {
        self.order_after_files(&order)?;
        if let Mode::Kept(kept) = &mut self.mode {
            kept.told = order;
        }
        Ok(())
    }

    /// Queues the order for the preparer. The driver's order follows when the preparer is done.
    pub(crate) fn prepare(&mut self, mut preparation: Preparation) -> Result<(), GuestError> {
        if let Mode::Kept(kept) = &self.mode {
            preparation.decoder = DriverDecoder::awaiting(&kept.id);
        }
        self.make_ready(&preparation.how)?;
        let preparation = Box::new(preparation);
        self.state = match self.mode {
            Mode::Once => State::Preparing(preparation),
            Mode::Kept(_) => State::CatchingUp(Some(preparation)),
        };
        Ok(())
    }

    /// Queues the program for the preparer. In a fresh sandbox the preparer started with the sandbox; elsewhere
    /// it may have to be started first.
    pub(super) fn make_ready(&mut self, how: &Preparing) -> Result<(), GuestError> {
        let id = match &self.mode {
            Mode::Once => "",
            Mode::Kept(kept) => {
                self.channel.start_preparer(how.command.clone(), kept.interpreter.runtime)?;
                kept.id.as_str()
            }
        };
        let data = driver::prepare_order(id, &how.order);
        self.queue_after_files(ToGuest::Stdin { process: PREPARE, after: self.placed, data })
    }

    /// Queues the end of standard input.
    pub(crate) fn end_input(&mut self) -> Result<(), GuestError> {
        self.queue_after_files(ToGuest::StdinEnd { process: self.process })
    }

    /// Sends everything that is queued.
    pub(crate) async fn send(&mut self) -> Result<(), GuestError> {
        self.channel.writer.flush().await
    }
}
