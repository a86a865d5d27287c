//! The conversation with a guest: one state machine for everything that runs a program inside a sandbox.
//!
//! A fresh run (`run`), a compiler (`compile`) and a syntax check (`validate`) use mode [`Mode::Once`]: the
//! sandbox has one program and ends with it. A run in a persistent sandbox (`sandboxes`) uses mode
//! [`Mode::Kept`]: the interpreter existed before the run and outlives it. [`Conversation`] owns the state; no
//! other type changes it.
//!
//! ```text
//!         Once                                Kept
//!          |                                   |
//!          |                              CatchingUp ---- no answer ----------------> Limit(Lost)
//!          |                                   |  guest: answers the sync question (SYNC)
//!          |                                   |  an interpreter that died before is replaced
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
//!  any state -- a file was refused, not started or not unpacked, the driver leaves (Once) -> Over
//!  any state -- stop, clock, watch, too much output, the stream is broken -------------> Limit
//!
//!  Limit, Once: the caller destroys the sandbox.
//!  Limit, Kept: interrupt, three times --- Over: interpreter kept --- Exited: interpreter ended
//!                  |
//!                  +-- neither: SIGKILL --- Exited: interpreter killed --- no report: sandbox gone
//! ```
//!
//! What must hold:
//! - Every message from the guest is hostile. Output is kept up to a budget. A driver's messages are shown to
//!   the caller; they decide only when the program's own run is over.
//! - No wait in the loop delays the clock. A caller that does not listen and a guest that does not read delay
//!   only their own program. Outgoing messages wait in the writer's queue and leave as the guest takes them.
//! - A driver's message alone does not end the run of an interpreter that outlives it, because a program can
//!   forge that message. The guest must also have seen the interpreter's first thread wait for its next order.
//!   Until then the clock and the limits continue.
//! - When a run meets a limit, the host decides how the run ended.
//! - Links ([`links`]) exist only for a run that was granted some. They end with the run in every mode: before the
//!   verdict the brokers are gone, and in mode kept the guest has confirmed that nothing listens any more.

mod channel;
mod collect;
mod input;
mod kept;
mod links;
mod listener;
mod opening;
mod redacted;
mod stop;
mod unpacking;

use std::time::Duration;

use sandbox::Sandbox;
use tokio::time::Instant;
use wire::{Exit, FailureKind, FromGuest, STDIN_WINDOW_BYTES, Stream};

pub(crate) use self::channel::{GuestChannel, KeptInterpreter};
use self::input::{Input, Terminal};
use self::kept::Kept;
pub(crate) use self::kept::{InterpreterFate, KeptEnd};
use self::links::Links;
pub use self::listener::RunEvent;
pub(crate) use self::listener::{Audience, Listener};
pub(crate) use self::opening::{Preparation, StartedProcess};
pub use self::stop::Stop;
pub(crate) use self::stop::StopSignals;
use self::unpacking::Unpacking;
use crate::access::Redaction;
use crate::display::Display;
use crate::driver::{Done, DriverDecoder};
use crate::feed::Feed;
use crate::guest_client::{GuestError, GuestReader, GuestWriter, PLACED};
use crate::links::LinkTable;
use crate::output::Output;
use crate::verdict::End;

/// The process number of the only program in a fresh sandbox.
pub(crate) const MAIN: u32 = 1;
/// The process number of the preparer.
pub(crate) const PREPARE: u32 = 2;
/// The number of the named pipe that brings standard input to an interpreter that outlives its runs.
pub(crate) const INPUT: u32 = 3;
/// The first process number of an interpreter that outlives its runs. All other processes have smaller numbers.
const FIRST_KEPT: u32 = 16;
/// The driver mode for an interpreter that outlives its runs.
pub(crate) const KEEP: &str = "keep";
/// The request number of the sync question: whether the guest has reported everything from before.
const SYNC: u32 = u32::MAX;
/// The request number of the question whether an interpreter reads its order.
const HEARS: u32 = SYNC - 1;
/// The request number of the question when an interpreter waits for its next order.
const IDLE: u32 = SYNC - 2;
/// The request number of the order to end all links.
const LINKS: u32 = SYNC - 3;
/// The request number of the question when a program waits for standard input.
const READ: u32 = SYNC - 4;
/// A guest answers at once. A guest that takes longer is lost.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// How long output may still be read from a sandbox that was killed.
const REST_PATIENCE: Duration = Duration::from_millis(200);

/// One program in a sandbox, from its order to its end.
pub(crate) struct Conversation<'a> {
    pub(crate) channel: GuestChannel,
    mode: Mode<'a>,
    state: State,
    /// The process that executes the program.
    process: u32,
    /// The number of its placed files.
    placed: u32,
    input: Input,
    output: Output,
    overflow: Overflow,
    decoder: DriverDecoder,
    audience: Option<&'a mut Audience>,
    links: Links,
    /// Takes the secrets of the run out of its output.
    redaction: Option<Redaction>,
    /// The command that unpacks archives, while it works.
    unpacking: Option<Unpacking>,
    terminal: Terminal,
}

/// Whether the sandbox outlives the run.
enum Mode<'a> {
    /// The sandbox ends with its program.
    Once,
    /// The sandbox existed before the run and remains.
    Kept(Kept<'a>),
}

/// The state of a conversation; see the diagram of the module.
enum State {
    /// The guest has not yet answered the sync question.
    CatchingUp(Option<Box<Preparation>>),
    /// The preparer works on the program.
    Preparing(Box<Preparation>),
    /// The preparer refused the program, with this report.
    Refused(Option<Done>),
    /// The program has its order.
    Running,
    /// The driver says that the program is over. The guest has not yet seen the interpreter wait for its next
    /// order.
    Claimed,
}

/// What happens to output beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The host ends the program.
    EndsProgram,
    /// The host drops the output.
    LeftOut,
}

/// How a conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The driver or the guest reported the end, or the program never began.
    Over(End),
    /// The program's process ended.
    Exited(Exit),
    /// The host ends the run.
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

/// The output and the reports of a program.
pub(crate) struct Said {
    pub(crate) output: Output,
    /// The driver's report of the end, or the report of a parser that refused the program.
    pub(crate) done: Option<Done>,
    /// The program's displays, and messages about displays that were left out.
    pub(crate) displays: (Vec<Display>, Vec<String>),
}

impl Said {
    /// The report about an archive that could not be unpacked.
    pub(crate) fn not_unpacked(&self) -> GuestError {
        let said = self.done.as_ref().and_then(|done| done.error_message.clone());
        GuestError::NotUnpacked { said: said.unwrap_or_default() }
    }
}

impl<'a> Conversation<'a> {
    /// Creates a conversation with a sandbox that has one program.
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
            links: Links::None,
            redaction: None,
            unpacking: None,
            terminal: Terminal::None,
        }
    }

    /// Delivers events to this audience from now on.
    pub(crate) fn tell_to(&mut self, audience: &'a mut Audience) {
        self.audience = Some(audience);
    }

    /// Continues with another sandbox, which already has its order. The audience stays the same.
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
            if self.links.are_open() {
                self.pump_links();
                // Brokers may share this thread, and a guest that says much must not keep them from it.
                tokio::task::consume_budget().await;
            }
            let (is_asked, ask_at) = (self.is_catching_up(), self.ask_at());
            let may_feed = !is_asked && !self.is_unpacking();
            let Self {
                channel: GuestChannel { reader, writer, .. }, input, audience, links, terminal, ..
            } = &mut *self;
            let Input { feed, window, .. } = input;
            let is_behind = audience.as_ref().is_some_and(|audience| audience.is_behind());
            let message = tokio::select! {
                biased;
                why = stops.stopped() => return Ended::Limit(End::Stopped(why)),
                () = &mut clock => {
                    let Some(until) = links.prolonged(deadline) else { return Ended::Limit(End::Clock) };
                    clock.as_mut().reset(until);
                    continue;
                }
                () = &mut unanswered, if is_asked => return Ended::Limit(End::Lost),
                () = until(ask_at), if ask_at.is_some() => {
                    self.ask_whether_it_hears();
                    continue;
                }
                ending = &mut watch => return Ended::Limit(End::Watch(ending)),
                () = catch_up(audience), if is_behind => continue,
                message = reader.next(), if !is_behind => message,
                written = writer.write_queued(), if writer.has_queued() => {
                    // The guest no longer reads. Messages that it sent before still decide.
                    if written.is_err() { *feed = Feed::Over }
                    continue;
                }
                () = links.rung(), if links.are_open() && LinkTable::has_room(writer) => continue,
                size = terminal.next_size(), if !writer.has_queued() => {
                    self.send_size(size);
                    continue;
                }
                piece = feed.next(*window), if may_feed && !writer.has_queued() && feed.wants(*window) => {
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

    /// Handles one message. Returns `Some` when it ends the conversation.
    fn take(&mut self, message: FromGuest) -> Option<Ended> {
        if let Some(ended) = self.hear_unpacker(&message) {
            return ended;
        }
        match message {
            FromGuest::Output { process: PREPARE, stream, data } => self.hear_preparer(stream, &data),
            FromGuest::Output { stream, data, .. } => self.keep(stream, data),
            FromGuest::Control { process, data } if process == self.process => self.hear_driver(&data),
            FromGuest::StdinTaken { process, bytes } if process == self.input_number() => {
                self.input.window = (self.input.window + bytes as usize).min(STDIN_WINDOW_BYTES);
                None
            }
            FromGuest::Done { request: LINKS } => {
                self.links_ended();
                None
            }
            FromGuest::Done { request: READ } => self.tell_input_wanted(),
            FromGuest::Done { request } => self.take_answer(request),
            FromGuest::Failed { request, errno, kind: FailureKind::Listen } => {
                self.take_listen_failure(request, errno)
            }
            FromGuest::Failed { request, errno, .. } => self.take_failure(request, errno),
            FromGuest::Exited { process, exit } => self.take_exit(process, exit),
            message @ (FromGuest::Listening { .. }
            | FromGuest::LinkOpened { .. }
            | FromGuest::Link { .. }
            | FromGuest::LinkTaken { .. }
            | FromGuest::LinkEnd { .. }
            | FromGuest::LinkClosed { .. }) => self.take_link(message),
            _ => None,
        }
    }

    fn keep_redacted(&mut self, stream: Stream, mut data: Vec<u8>) -> Option<Ended> {
        let kept = self.output.keep(stream, &data).len();
        if !matches!(self.terminal, Terminal::None) {
            // Only a limit that ends programs is told as one.
            self.output.overflowed = false;
            if let Some(audience) = &mut self.audience {
                audience.tell_terminal(data, kept);
            }
            return None;
        }
        if let Some(audience) = self.audience.as_mut().filter(|_| kept > 0) {
            data.truncate(kept);
            audience.tell(RunEvent::Output { stream, data });
        }
        // Output between two runs belongs to this run, but does not end it.
        self.output.overflowed &= self.overflow == Overflow::EndsProgram && !self.is_catching_up();
        self.output.overflowed.then_some(Ended::Limit(End::Output))
    }

    fn hear_driver(&mut self, data: &[u8]) -> Option<Ended> {
        self.decoder.feed(data);
        match self.mode {
            // The guest sent all output of the program before this message. Remaining processes die with the
            // sandbox.
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
            // The interpreter died before this run. The answer to the sync question decides whether it must be
            // replaced.
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

    /// Handles the preparer's end: the driver gets its order, or the conversation is over.
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
        // The order leaves the queue as the guest takes it.
        let is_lost = self.order(order).is_err();
        self.ask_later();
        is_lost.then_some(Ended::Limit(End::Lost))
    }

    /// Whether the program has produced no message yet, and has reached nothing outside.
    pub(crate) fn is_silent(&self) -> bool {
        !self.links.are_used()
            && self.output.stdout.is_empty()
            && self.output.stderr.is_empty()
            && self.decoder.done().is_none()
    }

    /// Writes a compiler-like message to standard error for a program that the preparer refused.
    pub(crate) fn tell_compile_failure(&mut self, source: &str) {
        let State::Refused(Some(done)) = &self.state else { return };
        let Some(message) = &done.error_message else { return };
        let place = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let text = format!("{source}{}{}: {message}\n", place(done.error_line), place(done.error_column));
        self.keep(Stream::Stderr, text.into_bytes());
    }

    /// Reads the output that was in transit when the sandbox was killed.
    pub(crate) async fn read_rest(&mut self, end: End) {
        let read = async {
            catch_up(&mut self.audience).await;
            while !matches!(end, End::Program(_))
                && let Some(message) = self.channel.reader.rest().await
            {
                self.take(message);
                catch_up(&mut self.audience).await;
            }
            self.release_held().await;
        };
        tokio::time::timeout(REST_PATIENCE, read).await.ok();
    }

    /// Returns the stream, and what the program wrote and reported.
    pub(crate) fn into_parts(mut self) -> (GuestChannel, Said) {
        self.keep_held();
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
