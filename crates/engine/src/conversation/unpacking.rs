//! Archives among the files of a run. A process of the sandbox unpacks them before the program gets its order.
//!
//! While it works, messages that start the program wait here. If it fails, they are dropped: nothing runs, and a
//! persistent interpreter keeps its state. Clock, limits and stops apply as to the program.

use sandbox::WORKSPACE;
use wire::{Exit, Fork, FromGuest, OpenProcess, Stream, ToGuest};

use super::{Conversation, Ended, PREPARE, State};
use crate::driver::Done;
use crate::guest_client::GuestError;
use crate::runtimes::Runtime;
use crate::unpack;
use crate::verdict::End;

/// The process number of the command that unpacks.
pub(super) const UNPACK: u32 = 3;
/// How much of its output is kept.
const SAID_BYTES_MAX: usize = 4 << 10;

/// A command at work.
#[derive(Default)]
pub(super) struct Unpacking {
    held: Vec<Held>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// A message that waits for the files.
enum Held {
    /// The order for the driver, whichever process that is by then.
    Order(Vec<u8>),
    Message(ToGuest),
}

impl Conversation<'_> {
    /// Queues the command that unpacks, after the files. Without one there is nothing to do.
    pub(crate) fn unpack(
        &mut self,
        command: Option<Vec<String>>,
        runtime: &Runtime,
    ) -> Result<(), GuestError> {
        let Some(argv) = command else { return Ok(()) };
        let env = runtime.own_environment().into_iter().collect();
        let (cwd, after) = (WORKSPACE.to_owned(), self.placed);
        let fork = Fork::Never;
        let open =
            OpenProcess { process: UNPACK, after, argv, env, cwd, has_channel: false, fork, terminal: None };
        self.channel.writer.queue(&ToGuest::Open(open))?;
        self.channel.writer.queue(&ToGuest::StdinEnd { process: UNPACK })?;
        self.unpacking = Some(Unpacking::default());
        Ok(())
    }

    pub(super) fn is_unpacking(&self) -> bool {
        self.unpacking.is_some()
    }

    /// Queues a message that starts something, once the files are there.
    pub(super) fn queue_after_files(&mut self, message: ToGuest) -> Result<(), GuestError> {
        let Some(unpacking) = &mut self.unpacking else { return self.channel.writer.queue(&message) };
        if is_for_preparer(&message) {
            // For a preparer that was replaced: only one may get the program.
            unpacking.held.retain(|held| !matches!(held, Held::Message(other) if is_for_preparer(other)));
        }
        unpacking.held.push(Held::Message(message));
        Ok(())
    }

    /// Queues the order for the driver, once the files are there.
    pub(super) fn order_after_files(&mut self, order: &[u8]) -> Result<(), GuestError> {
        match &mut self.unpacking {
            Some(unpacking) => {
                unpacking.held.push(Held::Order(order.to_vec()));
                Ok(())
            }
            None => self.channel.writer.control(self.process, self.placed, order),
        }
    }

    /// Handles a message about the command that unpacks. `None`: the message is about something else.
    pub(super) fn hear_unpacker(&mut self, message: &FromGuest) -> Option<Option<Ended>> {
        match message {
            FromGuest::Output { process: UNPACK, stream, data } => {
                if let Some(unpacking) = &mut self.unpacking {
                    let said = match stream {
                        Stream::Stdout => &mut unpacking.stdout,
                        Stream::Stderr => &mut unpacking.stderr,
                    };
                    let room = SAID_BYTES_MAX.saturating_sub(said.len()).min(data.len());
                    said.extend_from_slice(&data[..room]);
                }
                Some(None)
            }
            FromGuest::Exited { process: UNPACK, exit } => Some(self.unpacked(*exit)),
            FromGuest::Failed { request: UNPACK, .. } => Some(self.unpacked(Exit::Code(127))),
            _ => None,
        }
    }

    /// Handles the end of the command: the program gets its order, or the conversation is over.
    fn unpacked(&mut self, exit: Exit) -> Option<Ended> {
        let Unpacking { held, stdout, stderr } = self.unpacking.take()?;
        if exit != Exit::Code(0) {
            let error_message = Some(unpack::report(&stdout, &stderr));
            self.state = State::Refused(Some(Done { error_message, ..Done::default() }));
            return Some(Ended::Over(End::NotUnpacked));
        }
        for held in held {
            let queued = match held {
                Held::Order(order) => self.order_after_files(&order),
                Held::Message(message) => self.channel.writer.queue(&message),
            };
            if queued.is_err() {
                return Some(Ended::Limit(End::Lost));
            }
        }
        if !self.is_catching_up() {
            self.ask_later();
        }
        None
    }
}

fn is_for_preparer(message: &ToGuest) -> bool {
    matches!(message, ToGuest::Stdin { process: PREPARE, .. })
}
