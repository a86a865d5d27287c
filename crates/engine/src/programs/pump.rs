//! Moves the bytes of one program: its streams to the reader outside, links to their brokers.
//!
//! Every message of the guest is hostile. A reader that does not read delays only its own program: nothing more is taken
//! from the guest meanwhile, so nothing grows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbox::Sandbox;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use wire::{CHUNK_BYTES_MAX, Exit, FailureKind, FromGuest, STDIN_WINDOW_BYTES, Stream, ToGuest};

use crate::conversation::MAIN;
use crate::guest_client::{GuestReader, GuestWriter};
use crate::links::LinkTable;

/// How often the limits are looked at that only the host can watch.
const LOOK_PACE: Duration = Duration::from_millis(200);
/// How long a program may take to end by itself when its input is closed.
const GRACE: Duration = Duration::from_millis(700);
/// How much of standard error is kept.
const WORDS_BYTES_MAX: usize = 2048;

/// The streams of one program.
pub(super) struct Pump {
    reader: GuestReader,
    writer: GuestWriter,
    links: Option<LinkTable>,
    input: DuplexStream,
    output: DuplexStream,
    words: Arc<Mutex<Vec<u8>>>,
    /// Output that the reader outside has not taken.
    pending: Vec<u8>,
    /// How much input the guest takes.
    window: usize,
    /// When the program is ended, once its input is over.
    ends_at: Option<Instant>,
}

/// Whether the program goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Continues,
    Over,
}

impl Pump {
    pub(super) fn new(
        (reader, writer): (GuestReader, GuestWriter),
        links: Option<LinkTable>,
        (input, output): (DuplexStream, DuplexStream),
        words: Arc<Mutex<Vec<u8>>>,
    ) -> Self {
        let (pending, window) = (Vec::new(), STDIN_WINDOW_BYTES);
        Self { reader, writer, links, input, output, words, pending, window, ends_at: None }
    }

    /// Returns when the program is over, a limit is reached, or nobody reads its output.
    pub(super) async fn run(mut self, sandbox: &mut dyn Sandbox) {
        let mut looks = interval_at(Instant::now() + LOOK_PACE, LOOK_PACE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut piece = vec![0; CHUNK_BYTES_MAX];
        loop {
            if let Some(links) = &mut self.links {
                // A piece always fits a frame.
                links.pump(&mut self.writer).ok();
                tokio::task::consume_budget().await;
            }
            let room = self.window.min(CHUNK_BYTES_MAX);
            let may_feed = room > 0 && self.ends_at.is_none() && !self.writer.has_queued();
            let Self { reader, writer, links, input, output, pending, ends_at, .. } = &mut self;
            let has_room = LinkTable::has_room(writer);
            let next = tokio::select! {
                biased;
                () = until(*ends_at), if ends_at.is_some() => Next::Over,
                written = output.write(pending), if !pending.is_empty() => match written {
                    Ok(count @ 1..) => {
                        pending.drain(..count);
                        Next::Continues
                    }
                    _ => Next::Over,
                },
                message = reader.next(), if pending.is_empty() => match message {
                    Ok(message) => self.take(message),
                    Err(_) => Next::Over,
                },
                written = writer.write_queued(), if writer.has_queued() => match written {
                    Ok(()) => Next::Continues,
                    Err(_) => Next::Over,
                },
                () = rung(links), if has_room => Next::Continues,
                count = input.read(&mut piece[..room]), if may_feed => {
                    self.feed(&piece[..count.unwrap_or(0)]);
                    Next::Continues
                }
                _ = looks.tick() => match sandbox.is_quiet() {
                    true => Next::Continues,
                    false => match sandbox.look().await {
                        Some(ending) => {
                            self.note(&format!("the wall ended it: {}", told(ending)));
                            Next::Over
                        }
                        None => Next::Continues,
                    },
                },
            };
            if next == Next::Over {
                break;
            }
            self.writer.write_queued_now();
        }
        if let Some(links) = self.links.take() {
            links.cut().await;
        }
    }

    /// Queues input. No bytes mean its end.
    fn feed(&mut self, bytes: &[u8]) {
        let message = match bytes.is_empty() {
            true => {
                self.ends_at = Some(Instant::now() + GRACE);
                ToGuest::StdinEnd { process: MAIN }
            }
            false => {
                self.window -= bytes.len();
                ToGuest::Stdin { process: MAIN, after: 0, data: bytes.to_vec() }
            }
        };
        // A piece always fits a frame.
        self.writer.queue(&message).ok();
    }

    fn take(&mut self, message: FromGuest) -> Next {
        match message {
            FromGuest::Output { process: MAIN, stream: Stream::Stdout, data } => self.pending = data,
            FromGuest::Output { process: MAIN, stream: Stream::Stderr, data } => self.keep_words(&data),
            FromGuest::StdinTaken { process: MAIN, bytes } => {
                self.window = (self.window + bytes as usize).min(STDIN_WINDOW_BYTES);
            }
            FromGuest::Exited { process: MAIN, exit } => {
                if let Exit::Signal(signal) = exit {
                    self.note(&format!("it was ended by signal {signal}"));
                }
                return Next::Over;
            }
            FromGuest::Failed { kind, errno, .. } => {
                let what = match kind {
                    FailureKind::Listen => "its way out could not be opened",
                    _ => "it could not be started behind the wall",
                };
                self.note(&format!("{what}: {}", std::io::Error::from_raw_os_error(errno)));
                return Next::Over;
            }
            message @ (FromGuest::Listening { .. }
            | FromGuest::LinkOpened { .. }
            | FromGuest::Link { .. }
            | FromGuest::LinkTaken { .. }
            | FromGuest::LinkEnd { .. }
            | FromGuest::LinkClosed { .. }) => {
                let taken = self.links.as_mut().map(|links| links.take(message));
                if !matches!(taken, Some(Ok(()))) {
                    return Next::Over;
                }
            }
            _ => {}
        }
        Next::Continues
    }

    fn keep_words(&self, data: &[u8]) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(data);
        let surplus = words.len().saturating_sub(WORDS_BYTES_MAX);
        words.drain(..surplus);
    }

    /// Adds a line to what the program said last.
    fn note(&self, line: &str) {
        self.keep_words(format!("\n{line}\n").as_bytes());
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn rung(links: &Option<LinkTable>) {
    match links {
        Some(links) => links.rung().await,
        None => std::future::pending().await,
    }
}

fn told(ending: sandbox::Ending) -> &'static str {
    use sandbox::Ending;
    match ending {
        Ending::Memory => "it used more memory than it may",
        Ending::Cpu => "it used more processor time than it may",
        Ending::Disk => "it filled its writable space",
        Ending::KernelShare => "it held too many sockets, locks or watches",
        Ending::Gone => "its sandbox is gone",
    }
}
