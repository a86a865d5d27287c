//! The program's standard input, and the sizes of its terminal.
//!
//! Input goes to the process of the program. An interpreter that outlives its runs reads the input of each run from a
//! named pipe of the guest instead, so that a run can end its input without closing the interpreter's.

use tokio::sync::mpsc;
use wire::{STDIN_WINDOW_BYTES, ToGuest, WindowSize};

use super::{Conversation, Ended, INPUT, Overflow, READ, RunEvent};
use crate::feed::Feed;
use crate::guest_client::GuestError;

/// The standard input of the program.
pub(super) struct Input {
    pub(super) feed: Feed,
    /// How many bytes may still be sent before the guest reports that it took some.
    pub(super) window: usize,
    /// Whether it goes to the named pipe of the run instead of the process.
    pub(super) is_named: bool,
}

impl Default for Input {
    fn default() -> Self {
        Self { feed: Feed::Over, window: STDIN_WINDOW_BYTES, is_named: false }
    }
}

/// The terminal of the program.
pub(super) enum Terminal {
    /// The program has pipes.
    None,
    /// New sizes of the window come.
    Sized(mpsc::Receiver<WindowSize>),
    /// No more sizes come.
    Fixed,
}

impl Terminal {
    /// The next size; `None` once, when no more come. Never completes without a terminal. Cancel safe.
    pub(super) async fn next_size(&mut self) -> Option<WindowSize> {
        match self {
            Self::Sized(resizes) => resizes.recv().await,
            Self::None | Self::Fixed => std::future::pending().await,
        }
    }
}

impl Conversation<'_> {
    /// Passes these sizes on to the program's terminal. All of its output goes to the pipe of the audience; what is
    /// beyond the limit is not kept.
    pub(crate) fn has_terminal(&mut self, resizes: mpsc::Receiver<WindowSize>) {
        self.terminal = Terminal::Sized(resizes);
        self.overflow = Overflow::LeftOut;
    }

    /// Sets the standard input. It is sent as the program takes it. For empty input, see [`Self::end_input`].
    pub(crate) fn feed(&mut self, feed: Feed) {
        self.input.feed = feed;
        self.ask_about_reading();
    }

    /// Queues the order for a named pipe at that path, through which an interpreter that outlives the run reads its
    /// input.
    pub(crate) fn name_input(&mut self, path: &str) -> Result<(), GuestError> {
        self.input.is_named = true;
        let (request, path) = (self.placed, path.to_owned());
        self.channel.writer.queue(&ToGuest::OpenInput { request, process: INPUT, path })
    }

    /// Queues the removal of the named pipe, if the run had one.
    pub(super) fn forget_input(&mut self) {
        if std::mem::take(&mut self.input.is_named) {
            // A short message always fits a frame.
            self.channel.writer.queue(&ToGuest::CloseInput { process: INPUT }).ok();
            self.channel.writer.write_queued_now();
        }
    }

    /// The number to which standard input goes.
    pub(super) fn input_number(&self) -> u32 {
        if self.input.is_named { INPUT } else { self.process }
    }

    /// Queues the question when the program waits for input, if the caller wants to know.
    pub(super) fn ask_about_reading(&mut self) {
        if self.input.feed.is_prompted() {
            let process = self.input_number();
            // A short message always fits a frame.
            self.channel.writer.queue(&ToGuest::AwaitRead { request: READ, process }).ok();
        }
    }

    pub(crate) fn input(&self) -> &Feed {
        &self.input.feed
    }

    /// Queues the next piece of standard input.
    pub(super) fn send_input(&mut self, piece: Option<Vec<u8>>) {
        let process = self.input_number();
        let is_more = piece.is_some();
        let message = match piece {
            Some(data) => {
                self.input.window = self.input.window.saturating_sub(data.len());
                ToGuest::Stdin { process, after: self.placed, data }
            }
            None => ToGuest::StdinEnd { process },
        };
        // A piece always fits a frame.
        self.channel.writer.queue(&message).ok();
        if is_more {
            self.ask_about_reading();
        }
    }

    /// Queues a new size of the terminal. `None` means that no more come.
    pub(super) fn send_size(&mut self, size: Option<WindowSize>) {
        match size {
            // A short message always fits a frame.
            Some(size) => {
                self.channel.writer.queue(&ToGuest::Resize { process: self.process, size }).ok();
            }
            None => self.terminal = Terminal::Fixed,
        }
    }

    /// Tells the caller that the program waits for input.
    pub(super) fn tell_input_wanted(&mut self) -> Option<Ended> {
        if let Some(audience) = &mut self.audience {
            audience.tell(RunEvent::InputWanted);
        }
        None
    }
}
