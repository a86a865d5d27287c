//! One run of a live interpreter.
//!
//! ```text
//! catch up, files, (make ready,) order: sent together -> follow -> done | ended by itself
//!                                                          |
//!                         clock, stop, limit -> interrupt -+-> lets go: the state is kept
//!                                                          +-> does not: killed, the files are kept
//! ```
//! Nothing is waited for on the way in. The guest answers that everything before was said before it does what was asked
//! later: an interpreter whose end is told before that answer died between two runs and never saw the order, which then
//! goes to a fresh one; one whose end is told after it was ended by this run. The same question lets an interpreter go on
//! that a program had stopped; one that is stopped all the same a while later, with the order unread, is replaced.
//!
//! That a run is over is the driver's word, or the end of its process; how it ended when a limit was met is the
//! host's.

use std::time::Duration;

use sandbox::{Ending, Limits, Sandbox};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use wire::{Exit, FromGuest, Stream, ToGuest};

use super::awake::{GuestChannel, HEARS, KEEP, PREPARE, SYNC};
use crate::conversation::tell;
use crate::display::Display;
use crate::driver::{self, Done, DriverDecoder, DriverRun};
use crate::guest_client::GuestError;
use crate::output::Output;
use crate::request::{RunRequest, Stdin};
use crate::result::RunError;
use crate::run::{OWN_FILES, RunEvent, Stop, in_workspace};
use crate::runtimes::{Call, Preparing, Runtime};
use crate::verdict::End;
use crate::{handle, variables};

const STDIN_FILE: &str = "stdin";
/// Signals that ask a program to let go, and how long it may take after each.
const INTERRUPTS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(700), Duration::from_millis(1500)];
/// A guest answers at once; one that does not is lost.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// An interpreter reads its order at once; one that is stopped and has not read it by then never will.
const HEAR_PATIENCE: Duration = Duration::from_secs(2);
const KILL_PATIENCE: Duration = Duration::from_secs(2);
const GONE: End = End::Watch(Ending::Gone);
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// What became of a run, before it is judged.
pub(super) struct RunEnd {
    pub(super) end: End,
    pub(super) output: Output,
    pub(super) done: Option<Done>,
    /// What a parser said that refused the program.
    pub(super) refused: Option<Done>,
    /// What it showed, and what of that was left out.
    pub(super) shown: (Vec<Display>, Vec<String>),
    /// What became of the interpreter.
    pub(super) interpreter: InterpreterFate,
    /// Whether it was started for this run.
    pub(super) is_fresh: bool,
    /// Whether that was because the one before was stopped and did not go on.
    pub(super) was_deaf: bool,
    /// Whether the guest had answered: before that nothing of the run was begun.
    pub(super) is_begun: bool,
}

/// An interpreter after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterpreterFate {
    /// It lives, with its state.
    Kept,
    /// It ended by itself, with the program.
    Ended,
    /// It did not let go and was killed.
    Killed,
    /// The whole sandbox is gone.
    Gone,
}

/// Who can end a run from outside.
pub(super) struct StopSignals {
    pub(super) stop: oneshot::Receiver<Stop>,
    pub(super) closing: watch::Receiver<bool>,
}

/// One run in the making.
pub(super) struct LiveRun<'a> {
    channel: &'a mut GuestChannel,
    runtime: &'a Runtime,
    limits: &'a Limits,
    /// The interpreter, once the order was given.
    process: u32,
    id: String,
    /// The number of its files.
    placed: u32,
    /// What the interpreter was told, until it is known that it lived to hear it.
    told: Vec<u8>,
    /// When to ask whether it did.
    ask_at: Option<Instant>,
    /// Whether one was replaced that did not hear.
    was_deaf: bool,
    is_caught_up: bool,
    is_fresh: bool,
    output: Output,
    decoder: DriverDecoder,
    ready: Option<MakingReady>,
    refused: Option<Done>,
    events: Option<mpsc::Sender<RunEvent>>,
    untold: Option<RunEvent>,
}

/// A program that is being made ready.
struct MakingReady {
    how: Preparing,
    decoder: DriverDecoder,
    /// What the driver is told if it became ready, and if not.
    order: Vec<u8>,
    order_as_it_is: Vec<u8>,
}

impl<'a> LiveRun<'a> {
    pub(super) fn new(
        channel: &'a mut GuestChannel,
        runtime: &'a Runtime,
        limits: &'a Limits,
        events: Option<mpsc::Sender<RunEvent>>,
    ) -> Result<Self, RunError> {
        // Nothing that an earlier run left behind can speak for this one without having heard of it.
        let id = handle::random("")?;
        let decoder = DriverDecoder::awaiting(&id);
        Ok(Self {
            placed: channel.next_placed(),
            channel,
            runtime,
            limits,
            process: 0,
            id,
            told: Vec::new(),
            ask_at: None,
            was_deaf: false,
            is_caught_up: false,
            is_fresh: false,
            output: Output::new(limits.output_bytes),
            decoder,
            ready: None,
            refused: None,
            events,
            untold: None,
        })
    }

    /// Sends the files and the order, with the question whether the interpreter is still there.
    pub(super) async fn begin(&mut self, request: &RunRequest) -> Result<(), GuestError> {
        let known = self.channel.awake(self.runtime);
        self.channel.writer.queue(&ToGuest::Drain { request: SYNC, process: known.unwrap_or(0) })?;
        for input in &request.inputs {
            self.put(&input.path, &input.content).await?;
        }
        let stdin_path = match &request.stdin {
            Stdin::Bytes(bytes) => {
                let name = format!("{OWN_FILES}{STDIN_FILE}");
                self.put(&name, bytes).await?;
                in_workspace(&name)
            }
            Stdin::Empty | Stdin::Stream(_) => String::new(),
        };
        (self.process, self.is_fresh) = match known {
            Some(process) => (process, false),
            None => (self.channel.start(self.runtime)?, true),
        };
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        let source = self.runtime.source_path();
        let order = |code: &str| {
            let run = DriverRun { source: &source, code, variables: &variables, args: &request.args };
            driver::kept_run(&run, &self.id, &stdin_path)
        };
        let hidden = format!("{OWN_FILES}{}", self.runtime.source());
        let call = Call { mode: KEEP, source: &in_workspace(&hidden) };
        match self.runtime.preparing(&call) {
            None => {
                self.told = order(&request.code);
                self.channel.writer.control(self.process, self.placed, &self.told)?;
            }
            Some(how) => {
                let (order, order_as_it_is) = (order(""), order(&request.code));
                self.put(&hidden, request.code.as_bytes()).await?;
                self.make_ready(&how)?;
                let decoder = DriverDecoder::awaiting(&self.id);
                self.ready = Some(MakingReady { how, decoder, order, order_as_it_is });
            }
        }
        self.channel.writer.flush().await
    }

    async fn put(&mut self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        self.channel.writer.put_file(self.placed, path, content).await
    }

    /// Has the program made ready; what does so may have to be started first.
    fn make_ready(&mut self, how: &Preparing) -> Result<(), GuestError> {
        self.channel.start_preparer(how.command.clone(), self.runtime)?;
        let data = driver::prepare_order(&self.id, &how.order);
        self.channel.writer.queue(&ToGuest::Stdin { process: PREPARE, after: self.placed, data })
    }

    /// Everything from before was said. Who died before that is replaced, and told anew.
    async fn catch_up(&mut self) -> Result<(), GuestError> {
        self.is_caught_up = true;
        if self.channel.awake(self.runtime).is_none() {
            (self.process, self.is_fresh) = (self.channel.start(self.runtime)?, true);
            self.channel.writer.control(self.process, self.placed, &self.told)?;
        }
        self.ask_later();
        if let Some(ready) = self.ready.take() {
            if !self.channel.has_preparer() {
                self.make_ready(&ready.how)?;
            }
            self.ready = Some(ready);
        }
        self.channel.writer.flush().await
    }

    /// A new interpreter was not stopped by anybody.
    fn ask_later(&mut self) {
        if self.is_fresh || self.told.is_empty() {
            self.told.clear();
        } else {
            self.ask_at = Some(Instant::now() + HEAR_PATIENCE);
        }
    }

    async fn ask_whether_it_hears(&mut self) -> Result<(), GuestError> {
        self.ask_at = None;
        self.channel.writer.send(&ToGuest::Hears { request: HEARS, process: self.process }).await
    }

    /// Gives the order, which the interpreter has not read, to a new one.
    async fn replace(&mut self) -> Result<(), GuestError> {
        let told = std::mem::take(&mut self.told);
        self.channel.writer.queue(&ToGuest::Signal { process: self.process, signal: SIGKILL })?;
        self.channel.forget(self.process);
        (self.process, self.is_fresh, self.was_deaf) = (self.channel.start(self.runtime)?, true, true);
        self.channel.writer.control(self.process, self.placed, &told)?;
        self.channel.writer.flush().await
    }

    /// Until it is over, one way or another.
    pub(super) async fn play(mut self, sandbox: &mut dyn Sandbox, ears: &mut StopSignals) -> RunEnd {
        let end = self.follow(sandbox, ears).await;
        let (end, interpreter) = match end {
            Ended::Over(End::Lost) => (End::Lost, InterpreterFate::Gone),
            Ended::Over(end) => (end, InterpreterFate::Kept),
            Ended::ByItself(exit) => (End::Program(exit), InterpreterFate::Ended),
            Ended::Limit(end @ End::Watch(Ending::Gone)) => (end, InterpreterFate::Gone),
            Ended::Limit(end) => (end, self.make_let_go(end).await),
        };
        // News that nobody has taken by now are in the result.
        let (done, shown) = (self.done(), self.decoder.take_displays());
        let Self { output, refused, is_fresh, was_deaf, is_caught_up: is_begun, .. } = self;
        RunEnd { end, output, done, refused, shown, interpreter, is_fresh, was_deaf, is_begun }
    }

    async fn follow(&mut self, sandbox: &mut dyn Sandbox, ears: &mut StopSignals) -> Ended {
        let StopSignals { stop, closing } = ears;
        let mut watch = sandbox.watch();
        let clock = tokio::time::sleep(Duration::from_millis(self.limits.wall_ms));
        let unanswered = tokio::time::sleep(SYNC_PATIENCE);
        tokio::pin!(clock, unanswered);
        let mut stop_open = !stop.is_terminated();
        loop {
            let message = tokio::select! {
                biased;
                stopped = &mut *stop, if stop_open => match stopped {
                    Ok(why) => return Ended::Limit(End::Stopped(why)),
                    Err(_) => { stop_open = false; continue }
                },
                _ = closing.wait_for(|closing| *closing) => return Ended::Limit(End::Stopped(Stop::Killed)),
                () = &mut clock => return Ended::Limit(End::Clock),
                () = &mut unanswered, if !self.is_caught_up => return Ended::Limit(GONE),
                () = until(self.ask_at), if self.ask_at.is_some() => None,
                ending = &mut watch => return Ended::Limit(End::Watch(ending)),
                () = tell(&self.events, &mut self.untold), if self.untold.is_some() => continue,
                message = self.channel.reader.next(), if self.untold.is_none() => Some(message),
            };
            let message = match message {
                Some(Ok(message)) => message,
                None if self.ask_whether_it_hears().await.is_ok() => continue,
                None | Some(Err(_)) => return Ended::Limit(GONE),
            };
            if let Some(ended) = self.take(message).await {
                return ended;
            }
        }
    }

    /// Deals with one message; `Some` when the run is over.
    async fn take(&mut self, message: FromGuest) -> Option<Ended> {
        match message {
            FromGuest::Done { request: SYNC } => {
                let caught_up = self.catch_up().await;
                caught_up.is_err().then_some(Ended::Limit(GONE))
            }
            FromGuest::Done { request: HEARS } => {
                self.told = Vec::new();
                None
            }
            FromGuest::Failed { request: HEARS, .. } if !self.told.is_empty() => {
                self.replace().await.is_err().then_some(Ended::Limit(GONE))
            }
            FromGuest::Exited { process, .. } if !self.is_caught_up => {
                self.channel.forget(process);
                None
            }
            FromGuest::Failed { request, errno, .. } if request == self.placed => {
                Some(Ended::Over(End::Unplaced(errno)))
            }
            FromGuest::Output { process: PREPARE, stream, data } => {
                let ready = self.ready.as_mut().filter(|_| stream == Stream::Stdout)?;
                ready.decoder.feed(&data);
                let done = ready.decoder.done()?;
                self.order(Exit::Code(done.exit_code)).await
            }
            FromGuest::Exited { process: PREPARE, exit } => {
                self.channel.forget(PREPARE);
                self.order(exit).await
            }
            FromGuest::Failed { request: PREPARE, .. } => {
                self.channel.forget(PREPARE);
                self.order(Exit::Code(127)).await
            }
            FromGuest::Output { stream, data, .. } => {
                let kept = self.output.keep(stream, &data);
                if self.events.is_some() && !kept.is_empty() {
                    self.untold = Some(RunEvent::Output { stream, data: kept.to_vec() });
                }
                // What was written between two runs belongs to this one, but does not end it.
                self.output.overflowed &= self.is_caught_up;
                self.output.overflowed.then_some(Ended::Limit(End::Output))
            }
            FromGuest::Control { process, data } if process == self.process => {
                self.decoder.feed(&data);
                self.done().map(|done| Ended::Over(End::Program(Exit::Code(done.exit_code))))
            }
            FromGuest::Exited { process, exit } => {
                self.channel.forget(process);
                (process == self.process).then_some(Ended::ByItself(exit))
            }
            FromGuest::Failed { request, .. } if request == self.process => {
                self.channel.forget(request);
                Some(Ended::ByItself(Exit::Code(127)))
            }
            _ => None,
        }
    }

    /// The program is ready, or never will be: the driver is told, or the run is over.
    async fn order(&mut self, exit: Exit) -> Option<Ended> {
        let ready = self.ready.take()?;
        if ready.how.is_required && exit != Exit::Code(0) {
            self.refused = ready.decoder.done();
            return Some(Ended::Over(End::Compile(exit)));
        }
        let order = if exit == Exit::Code(0) { ready.order } else { ready.order_as_it_is };
        let queued = self.channel.writer.control(self.process, self.placed, &order);
        let is_sent = queued.is_ok() && self.channel.writer.flush().await.is_ok();
        self.told = order;
        self.ask_later();
        (!is_sent).then_some(Ended::Limit(GONE))
    }

    fn done(&self) -> Option<Done> {
        self.decoder.done()
    }

    /// Asks the program to stop; if it does not listen, ends its interpreter.
    async fn make_let_go(&mut self, end: End) -> InterpreterFate {
        // Whether it heard does not matter any more.
        self.told = Vec::new();
        let is_hopeless = matches!(end, End::Watch(Ending::Memory | Ending::KernelShare));
        if self.ready.take().is_some() {
            // It never got as far as the interpreter.
            self.signal(PREPARE, SIGKILL).await;
            return if self.hear_for(KILL_PATIENCE, PREPARE).await == Some(Heard::Exited) {
                InterpreterFate::Kept
            } else {
                InterpreterFate::Gone
            };
        }
        for patience in INTERRUPTS.iter().filter(|_| !is_hopeless) {
            self.signal(self.process, SIGINT).await;
            match self.hear_for(*patience, self.process).await {
                Some(Heard::Done) => return InterpreterFate::Kept,
                Some(Heard::Exited) => return InterpreterFate::Ended,
                None => {}
            }
        }
        self.signal(self.process, SIGKILL).await;
        match self.hear_for(KILL_PATIENCE, self.process).await {
            Some(_) => InterpreterFate::Killed,
            None => InterpreterFate::Gone,
        }
    }

    async fn signal(&mut self, process: u32, signal: i32) {
        // A guest that cannot be reached is found out by what does not follow.
        self.channel.writer.send(&ToGuest::Signal { process, signal }).await.ok();
    }

    /// Listens for a while to whether the run, or a process, is over.
    async fn hear_for(&mut self, patience: Duration, process: u32) -> Option<Heard> {
        let hear = async {
            loop {
                let message = self.channel.reader.next().await.ok()?;
                if matches!(message, FromGuest::Exited { process: ended, .. } if ended == process) {
                    self.channel.forget(process);
                    return Some(Heard::Exited);
                }
                if matches!(self.take(message).await, Some(Ended::Over(_))) {
                    return Some(Heard::Done);
                }
                self.untold = None;
            }
        };
        tokio::time::timeout(patience, hear).await.ok().flatten()
    }
}

async fn until(time: Option<Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
    }
}

enum Ended {
    /// The driver says so, or the parser refused.
    Over(End),
    /// The process of the interpreter ended.
    ByItself(Exit),
    /// The host ends it.
    Limit(End),
}

#[derive(PartialEq, Eq)]
enum Heard {
    Done,
    Exited,
}
