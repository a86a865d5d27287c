//! The conversation with a guest: one state machine for everything that runs a program inside a sandbox.
//!
//! A fresh run (`run`), a compiler (`compile`) and a syntax check (`validate`) hold it in mode [`Mode::Once`]: the
//! sandbox has one program and ends with it. A run in a persistent sandbox (`sandboxes`) holds it in mode
//! [`Mode::Kept`]: the interpreter was there before and lives on. [`Conversation`] owns the state; nothing else changes it.
//!
//! ```text
//!         Once                                Kept
//!          |                                   |
//!          |                              CatchingUp ---- no answer ----------------> Limit(Lost)
//!          |                                   |  guest: everything from before was told (SYNC)
//!          |                                   |  an interpreter that died meanwhile is replaced
//!          +-----------------+-----------------+
//!               has a preparer?
//!          yes /             \ no
//!             v               v
//!        Preparing -------> Running <--- order given to a new interpreter (HEARS refused)
//!             |    ready       |
//!     refused |                | driver: done (Kept)
//!             v                v
//!       Over(Compile)       Claimed -- guest: the interpreter waits for its next order (IDLE) --> Over(Program)
//!
//!  any state -- the program's process ended -------------------------------------------> Exited
//!  any state -- a file was refused, not started, the driver leaves (Once) -------------> Over
//!  any state -- stop, clock, watch, too much output, the stream is broken -------------> Limit
//!
//!  Limit, Once: the caller destroys the sandbox.
//!  Limit, Kept: interrupt, three times --- Over: interpreter kept --- Exited: interpreter ended
//!                  |
//!                  +-- neither: SIGKILL --- Exited: interpreter killed --- not heard of: sandbox gone
//! ```
//!
//! What must hold:
//! - Everything that the guest says is hostile. Output is kept up to a budget; a driver's words are shown, and decide
//!   nothing but when the program's own run is over.
//! - No wait in the loop holds up the clock: a caller that does not listen and a guest that does not read only hold up
//!   their own program. What is to be sent waits in the writer's queue, and leaves as the guest takes it.
//! - That a run of an interpreter that lives on is over is not its driver's word alone, which a program can forge: the guest
//!   has seen that the interpreter's first thread waits for its next order. Until then the clock and the limits go on.
//! - How a run ended when a limit was met is the host's word.

mod channel;
mod collect;
mod kept;
mod listener;
mod opening;
mod stop;

use std::time::Duration;

use sandbox::Sandbox;
use tokio::time::Instant;
use wire::{Exit, FromGuest, STDIN_WINDOW_BYTES, Stream, ToGuest};

pub(crate) use self::channel::GuestChannel;
use self::kept::Kept;
pub(crate) use self::kept::{InterpreterFate, KeptEnd};
pub use self::listener::RunEvent;
pub(crate) use self::listener::{Audience, Listener};
use self::opening::Input;
pub(crate) use self::opening::Preparation;
pub use self::stop::Stop;
pub(crate) use self::stop::StopSignals;
use crate::display::Display;
use crate::driver::{Done, DriverDecoder};
use crate::feed::Feed;
use crate::guest_client::{GuestReader, GuestWriter, PLACED};
use crate::output::Output;
use crate::verdict::End;

/// The one program of a fresh sandbox.
pub(crate) const MAIN: u32 = 1;
/// What makes its program ready.
pub(crate) const PREPARE: u32 = 2;
/// The first number of an interpreter that lives on; everything else has a smaller one.
const FIRST_KEPT: u32 = 16;
/// The mode of a driver in which the interpreter lives on.
pub(crate) const KEEP: &str = "keep";
/// Number of the answer to a question that only asks whether everything before was said.
const SYNC: u32 = u32::MAX;
/// The same of a question whether an interpreter takes what it is told.
const HEARS: u32 = SYNC - 1;
/// The same of a question when an interpreter waits for its next order.
const IDLE: u32 = SYNC - 2;
/// A guest answers at once; one that does not is lost.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// What may still be read from a sandbox that was killed.
const REST_PATIENCE: Duration = Duration::from_millis(200);

/// One program in a sandbox, from its order to its end.
pub(crate) struct Conversation<'a> {
    pub(crate) channel: GuestChannel,
    mode: Mode<'a>,
    state: State,
    /// The process whose program this is.
    process: u32,
    /// The number of its files.
    placed: u32,
    input: Input,
    output: Output,
    overflow: Overflow,
    decoder: DriverDecoder,
    audience: Option<&'a mut Audience>,
}

/// Whether the sandbox lives on.
enum Mode<'a> {
    /// It ends with its program.
    Once,
    /// It was there before, and stays.
    Kept(Kept<'a>),
}

/// Where a conversation is; see the module's drawing.
enum State {
    /// The guest has yet to answer that everything from before was told.
    CatchingUp(Option<Box<Preparation>>),
    /// The program is being made ready.
    Preparing(Box<Preparation>),
    /// The program could not be made ready: this is what was said about it.
    Refused(Option<Done>),
    /// The program has its order.
    Running,
    /// The driver says that the program is over; the guest has yet to see that the interpreter waits for its next order.
    Claimed,
}

/// What becomes of more output than is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It ends the program.
    EndsProgram,
    /// It is left out.
    LeftOut,
}

/// How a conversation came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was said to be over, or never began.
    Over(End),
    /// The program's process ended.
    Exited(Exit),
    /// The host ends it.
    Limit(End),
}

impl Ended {
    pub(crate) fn end(self) -> End {
        match self {
            Self::Over(end) | Self::Limit(end) => end,
            Self::Exited(exit) => End::Program(exit),
        }
    }
}

/// What a program wrote and said.
pub(crate) struct Said {
    pub(crate) output: Output,
    /// What its driver said about its end, or a parser that refused it.
    pub(crate) done: Option<Done>,
    /// What it showed, and a word about what was left out of that.
    pub(crate) displays: (Vec<Display>, Vec<String>),
}

impl<'a> Conversation<'a> {
    /// With a sandbox that has one program.
    pub(crate) fn once(guest: (GuestReader, GuestWriter), output_bytes: u64, overflow: Overflow) -> Self {
        Self {
            channel: GuestChannel::new(guest),
            mode: Mode::Once,
            state: State::Running,
            process: MAIN,
            placed: PLACED,
            input: Input::default(),
            output: Output::new(output_bytes),
            overflow,
            decoder: DriverDecoder::default(),
            audience: None,
        }
    }

    /// From now on they hear of it.
    pub(crate) fn tell_to(&mut self, audience: &'a mut Audience) {
        self.audience = Some(audience);
    }

    /// Begins anew with another sandbox, which has its order already; whoever listened listens on.
    pub(crate) fn go_on_as(&mut self, opened: Self, feed: Feed) {
        let audience = self.audience.take();
        *self = Self { audience, ..opened };
        self.feed(feed);
    }

    /// Carries input and output until something ends the program, at the latest at `deadline`.
    pub(crate) async fn follow(
        &mut self,
        sandbox: &mut dyn Sandbox,
        stops: &mut StopSignals,
        deadline: Instant,
    ) -> Ended {
        let mut watch = sandbox.watch();
        let clock = tokio::time::sleep_until(deadline);
        let unanswered = tokio::time::sleep(SYNC_PATIENCE);
        tokio::pin!(clock, unanswered);
        loop {
            let (is_asked, ask_at) = (self.is_catching_up(), self.ask_at());
            let Self { channel: GuestChannel { reader, writer, .. }, input, audience, .. } = &mut *self;
            let Input { feed, window } = input;
            let is_behind = audience.as_ref().is_some_and(|audience| audience.is_behind());
            let message = tokio::select! {
                biased;
                why = stops.stopped() => return Ended::Limit(End::Stopped(why)),
                () = &mut clock => return Ended::Limit(End::Clock),
                () = &mut unanswered, if is_asked => return Ended::Limit(End::Lost),
                () = until(ask_at), if ask_at.is_some() => {
                    self.ask_whether_it_hears();
                    continue;
                }
                ending = &mut watch => return Ended::Limit(End::Watch(ending)),
                () = catch_up(audience), if is_behind => continue,
                message = reader.next(), if !is_behind => message,
                written = writer.write_queued(), if writer.has_queued() => {
                    // Nobody reads any more; what the guest said before still decides.
                    if written.is_err() { *feed = Feed::Over }
                    continue;
                }
                piece = feed.next(*window), if !writer.has_queued() && feed.wants(*window) => {
                    self.send_input(piece);
                    continue;
                }
            };
            let Ok(message) = message else { return Ended::Limit(End::Lost) };
            if let Some(ended) = self.take(message) {
                return ended;
            }
            // At once: a guest that says much must not keep the host from answering.
            self.channel.writer.write_queued_now();
        }
    }

    /// Deals with one message; `Some` when it ends the conversation.
    fn take(&mut self, message: FromGuest) -> Option<Ended> {
        match message {
            FromGuest::Output { process: PREPARE, stream, data } => self.hear_preparer(stream, &data),
            FromGuest::Output { stream, data, .. } => self.keep(stream, data),
            FromGuest::Control { process, data } if process == self.process => self.hear_driver(&data),
            FromGuest::StdinTaken { process, bytes } if process == self.process => {
                self.input.window = (self.input.window + bytes as usize).min(STDIN_WINDOW_BYTES);
                None
            }
            FromGuest::Done { request } => self.take_answer(request),
            FromGuest::Failed { request, errno, .. } => self.take_failure(request, errno),
            FromGuest::Exited { process, exit } => self.take_exit(process, exit),
            _ => None,
        }
    }

    fn keep(&mut self, stream: Stream, mut data: Vec<u8>) -> Option<Ended> {
        let kept = self.output.keep(stream, &data).len();
        if let Some(audience) = self.audience.as_mut().filter(|_| kept > 0) {
            data.truncate(kept);
            audience.tell(RunEvent::Output { stream, data });
        }
        // What was written between two runs belongs to this one, but does not end it.
        self.output.overflowed &= self.overflow == Overflow::EndsProgram && !self.is_catching_up();
        self.output.overflowed.then_some(Ended::Limit(End::Output))
    }

    fn hear_driver(&mut self, data: &[u8]) -> Option<Ended> {
        self.decoder.feed(data);
        match self.mode {
            // Everything that it wrote was sent before this. What is left of it dies with its sandbox.
            Mode::Once => {
                self.decoder.leaving().map(|code| Ended::Over(End::Program(Exit::Code(code.into()))))
            }
            Mode::Kept(_) => self.claim(),
        }
    }

    fn take_failure(&mut self, request: u32, errno: i32) -> Option<Ended> {
        match request {
            HEARS => self.replace_if_unheard(),
            PREPARE => {
                self.channel.forget(PREPARE);
                self.prepared(Exit::Code(127))
            }
            request if request == self.placed => Some(Ended::Over(End::Unplaced(errno))),
            request if request == self.process => match self.mode {
                Mode::Once => Some(Ended::Over(End::NotStarted(errno))),
                Mode::Kept(_) => {
                    self.channel.forget(request);
                    Some(Ended::Exited(Exit::Code(127)))
                }
            },
            _ => None,
        }
    }

    fn take_exit(&mut self, process: u32, exit: Exit) -> Option<Ended> {
        self.channel.forget(process);
        match process {
            // It died before this run; whether it is needed is found out when everything from before was told.
            _ if self.is_catching_up() => None,
            PREPARE => self.prepared(exit),
            process => (process == self.process).then_some(Ended::Exited(exit)),
        }
    }

    fn hear_preparer(&mut self, stream: Stream, data: &[u8]) -> Option<Ended> {
        let State::Preparing(preparation) = &mut self.state else { return None };
        if stream != Stream::Stdout {
            return None;
        }
        preparation.decoder.feed(data);
        let done = preparation.decoder.done()?;
        self.prepared(Exit::Code(done.exit_code))
    }

    /// The program is ready, or never will be: the driver is told, or the conversation is over.
    fn prepared(&mut self, exit: Exit) -> Option<Ended> {
        if !matches!(self.state, State::Preparing(_)) {
            return None;
        }
        let State::Preparing(preparation) = std::mem::replace(&mut self.state, State::Running) else {
            return None;
        };
        let is_ready = exit == Exit::Code(0);
        let Preparation { how, order, order_as_it_is, decoder } = *preparation;
        if how.is_required && !is_ready {
            self.state = State::Refused(decoder.done());
            return Some(Ended::Over(End::Compile(exit)));
        }
        let order = if is_ready { order } else { order_as_it_is.unwrap_or(order) };
        // It leaves as the guest takes it.
        let is_lost = self.order(order).is_err();
        self.ask_later();
        is_lost.then_some(Ended::Limit(End::Lost))
    }

    /// Makes the next piece of standard input ready to be sent.
    fn send_input(&mut self, piece: Option<Vec<u8>>) {
        let process = self.process;
        let message = match piece {
            Some(data) => {
                self.input.window = self.input.window.saturating_sub(data.len());
                ToGuest::Stdin { process, after: self.placed, data }
            }
            None => ToGuest::StdinEnd { process },
        };
        // A piece is short enough for any frame.
        self.channel.writer.queue(&message).ok();
    }

    /// Whether nothing has been heard of the program.
    pub(crate) fn is_silent(&self) -> bool {
        self.output.stdout.is_empty() && self.output.stderr.is_empty() && self.decoder.done().is_none()
    }

    /// Writes what a compiler would have written about a program that could not be made ready.
    pub(crate) fn tell_compile_failure(&mut self, source: &str) {
        let State::Refused(Some(done)) = &self.state else { return };
        let Some(message) = &done.error_message else { return };
        let place = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let text = format!("{source}{}{}: {message}\n", place(done.error_line), place(done.error_column));
        self.keep(Stream::Stderr, text.into_bytes());
    }

    /// Takes the output that was on its way when the sandbox was killed.
    pub(crate) async fn read_rest(&mut self, end: End) {
        let read = async {
            catch_up(&mut self.audience).await;
            if matches!(end, End::Program(_)) {
                return;
            }
            while let Some(message) = self.channel.reader.rest().await {
                self.take(message);
                catch_up(&mut self.audience).await;
            }
        };
        tokio::time::timeout(REST_PATIENCE, read).await.ok();
    }

    /// The stream, and what came of the program.
    pub(crate) fn into_parts(mut self) -> (GuestChannel, Said) {
        let (refused, is_refused) = match self.state {
            State::Refused(done) => (done, true),
            _ => (None, false),
        };
        let done = if is_refused { refused } else { self.decoder.done() };
        (self.channel, Said { output: self.output, done, displays: self.decoder.take_displays() })
    }
}

async fn catch_up(audience: &mut Option<&mut Audience>) {
    if let Some(audience) = audience {
        audience.catch_up().await;
    }
}

async fn until(time: Option<Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
    }
}
