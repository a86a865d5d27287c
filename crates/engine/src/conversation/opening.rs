//! What is sent to the guest at the beginning, all at once: files, then the order that needs them.
//!
//! Nothing is waited for. A file that cannot be placed is told by the guest, which then drops the order.

use sandbox::WORKSPACE;
use wire::{Fork, OpenProcess, STDIN_WINDOW_BYTES, ToGuest};

use super::{Conversation, MAIN, Mode, PREPARE, State};
use crate::driver::{self, DriverDecoder};
use crate::feed::Feed;
use crate::guest_client::GuestError;
use crate::runtimes::{Preparing, Runtime};

/// A program that is being made ready.
pub(crate) struct Preparation {
    pub(super) how: Preparing,
    /// What the driver is told once it is ready.
    pub(super) order: Vec<u8>,
    /// The same if it could not be made ready and need not be; nothing: no difference.
    pub(super) order_as_it_is: Option<Vec<u8>>,
    pub(super) decoder: DriverDecoder,
}

impl Preparation {
    pub(crate) fn new(how: Preparing, order: Vec<u8>, order_as_it_is: Option<Vec<u8>>) -> Self {
        Self { how, order, order_as_it_is, decoder: DriverDecoder::default() }
    }
}

/// Standard input of the program.
pub(super) struct Input {
    pub(super) feed: Feed,
    /// How much of it may still be sent before the guest says that some was taken.
    pub(super) window: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { feed: Feed::Over, window: STDIN_WINDOW_BYTES }
    }
}

impl Conversation<'_> {
    /// Queues a file of the workspace.
    pub(crate) async fn place(&mut self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        self.channel.writer.put_file(self.placed, path, content).await
    }

    /// Queues the start of a program that has no driver.
    pub(crate) fn start(&mut self, argv: Vec<String>, runtime: &Runtime) -> Result<(), GuestError> {
        let (env, cwd) = (runtime.environment(), WORKSPACE.to_owned());
        let (process, after) = (MAIN, self.placed);
        let open = OpenProcess { process, after, argv, env, cwd, has_channel: false, fork: Fork::Never };
        self.channel.writer.queue(&ToGuest::Open(open))
    }

    /// Queues the order for the driver.
    pub(crate) fn order(&mut self, order: Vec<u8>) -> Result<(), GuestError> {
        self.channel.writer.control(self.process, self.placed, &order)?;
        if let Mode::Kept(kept) = &mut self.mode {
            kept.told = order;
        }
        Ok(())
    }

    /// Queues the order for what makes the program ready; the driver's follows when that is done.
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

    /// In a fresh sandbox what makes programs ready was started with the sandbox; elsewhere it may have to be started first.
    pub(super) fn make_ready(&mut self, how: &Preparing) -> Result<(), GuestError> {
        let id = match &self.mode {
            Mode::Once => "",
            Mode::Kept(kept) => {
                self.channel.start_preparer(how.command.clone(), kept.runtime)?;
                kept.id.as_str()
            }
        };
        let data = driver::prepare_order(id, &how.order);
        self.channel.writer.queue(&ToGuest::Stdin { process: PREPARE, after: self.placed, data })
    }

    /// Queues the end of standard input.
    pub(crate) fn end_input(&mut self) -> Result<(), GuestError> {
        self.channel.writer.queue(&ToGuest::StdinEnd { process: self.process })
    }

    /// What the program reads; it is sent as the program takes it. Where there is nothing, see [`Self::end_input`].
    pub(crate) fn feed(&mut self, feed: Feed) {
        self.input.feed = feed;
    }

    pub(crate) fn input(&self) -> &Feed {
        &self.input.feed
    }

    /// Sends everything that is queued.
    pub(crate) async fn send(&mut self) -> Result<(), GuestError> {
        self.channel.writer.flush().await
    }
}
