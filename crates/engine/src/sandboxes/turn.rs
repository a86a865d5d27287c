//! One run of a live interpreter.
//!
//! ```text
//! catch up -> interpreter -> files -> (make ready) -> order -> follow -> done | ended by itself
//!                                                               |
//!                              clock, stop, limit -> interrupt -+-> lets go: the state is kept
//!                                                               +-> does not: killed, the files are kept
//! ```
//! That a run is over is the driver's word, or the end of its process; how it ended when a limit was met is the
//! host's.

use std::time::Duration;

use sandbox::{Ending, Limits, Sandbox};
use tokio::sync::{mpsc, oneshot, watch};
use wire::{CHUNK_BYTES_MAX, Exit, FromGuest, Stream, ToGuest};

use super::living::{Inside, KEEP};
use crate::conversation::tell;
use crate::display::Display;
use crate::driver::{self, Done, DriverEar, DriverRun};
use crate::guest_client::{self, GuestError};
use crate::handle;
use crate::output::Output;
use crate::request::{RunRequest, Stdin};
use crate::run::{OWN_FILES, RunEvent, Stop, in_workspace};
use crate::runtimes::{Call, Runtime};
use crate::variables;
use crate::verdict::End;

/// What makes a program ready.
const PREPARE: u32 = 2;
const STDIN_FILE: &str = "stdin";
/// Signals that ask a program to let go, and how long it may take after each.
const INTERRUPTS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(700), Duration::from_millis(1500)];
const KILL_PATIENCE: Duration = Duration::from_secs(2);
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// What became of a run, before it is judged.
pub(super) struct Played {
    pub(super) end: End,
    pub(super) output: Output,
    pub(super) done: Option<Done>,
    /// What a parser said that refused the program.
    pub(super) refused: Option<Done>,
    /// What it showed, and what of that was left out.
    pub(super) shown: (Vec<Display>, Vec<String>),
    /// What became of the interpreter.
    pub(super) interpreter: Afterwards,
}

/// An interpreter after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
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
pub(super) struct Ears {
    pub(super) stop: oneshot::Receiver<Stop>,
    pub(super) closing: watch::Receiver<bool>,
}

/// One run in the making.
pub(super) struct Turn<'a> {
    inside: &'a mut Inside,
    runtime: &'a Runtime,
    limits: &'a Limits,
    process: u32,
    id: String,
    /// The end of what the driver said, and whether this run was named in all of it.
    heard: Vec<u8>,
    is_named: bool,
    output: Output,
    ear: DriverEar,
    ready: Option<MakingReady>,
    refused: Option<Done>,
    events: Option<mpsc::Sender<RunEvent>>,
    untold: Option<RunEvent>,
}

/// A program that is being made ready.
struct MakingReady {
    is_required: bool,
    ear: DriverEar,
    /// What the driver is told if it became ready, and if not.
    order: Vec<u8>,
    order_as_it_is: Vec<u8>,
}

impl<'a> Turn<'a> {
    /// Takes the interpreter of that language, which is starting or waiting.
    pub(super) fn new(
        inside: &'a mut Inside,
        runtime: &'a Runtime,
        limits: &'a Limits,
        process: u32,
        events: Option<mpsc::Sender<RunEvent>>,
    ) -> Self {
        Self {
            inside,
            runtime,
            limits,
            process,
            id: String::new(),
            heard: Vec::new(),
            is_named: false,
            output: Output::new(limits.output_bytes),
            ear: DriverEar::default(),
            ready: None,
            refused: None,
            events,
            untold: None,
        }
    }

    /// What was written since the last run.
    pub(super) fn take_output(&mut self, pieces: Vec<(Stream, Vec<u8>)>) {
        for (stream, data) in pieces {
            self.output.keep(stream, &data);
        }
    }

    /// Places the files and gives the order.
    pub(super) async fn begin(&mut self, request: &RunRequest) -> Result<(), GuestError> {
        // What earlier runs left in the interpreter cannot guess it, and so cannot end this one.
        self.id = handle::random("").map_err(|error| std::io::Error::other(error.message))?;
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
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        let source = self.runtime.source_path();
        let order = |code: &str| {
            let run = DriverRun { source: &source, code, variables: &variables, args: &request.args };
            driver::kept_run(&run, &self.id, &stdin_path)
        };
        let hidden = format!("{OWN_FILES}{}", self.runtime.source());
        let call = Call { mode: KEEP, source: &in_workspace(&hidden) };
        let Some((argv, is_required)) = self.runtime.prepare_command(&call) else {
            let order = order(&request.code);
            return self.inside.writer.control(self.process, &order).await;
        };
        let (order, order_as_it_is) = (order(""), order(&request.code));
        self.put(&hidden, request.code.as_bytes()).await?;
        self.inside.open(PREPARE, argv, self.runtime).await?;
        self.ready = Some(MakingReady { is_required, ear: DriverEar::default(), order, order_as_it_is });
        Ok(())
    }

    async fn put(&mut self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        guest_client::put_file(&mut self.inside.reader, &mut self.inside.writer, path, content).await
    }

    /// Until it is over, one way or another.
    pub(super) async fn play(mut self, sandbox: &mut dyn Sandbox, ears: Ears) -> Played {
        let end = self.follow(sandbox, ears).await;
        let (end, interpreter) = match end {
            Ended::Over(End::Lost) => (End::Lost, Afterwards::Gone),
            Ended::Over(end) => (end, Afterwards::Kept),
            Ended::ByItself(exit) => (End::Program(exit), Afterwards::Ended),
            Ended::Limit(end @ End::Watch(Ending::Gone)) => (end, Afterwards::Gone),
            Ended::Limit(end) => (end, self.make_let_go(end).await),
        };
        if interpreter == Afterwards::Kept {
            self.hear_rest().await;
        }
        // News that nobody has taken by now are in the result.
        let (done, shown) = (self.done(), self.ear.take_displays());
        Played { end, output: self.output, done, refused: self.refused, shown, interpreter }
    }

    async fn follow(&mut self, sandbox: &mut dyn Sandbox, ears: Ears) -> Ended {
        let Ears { mut stop, mut closing } = ears;
        let mut watch = sandbox.watch();
        let clock = tokio::time::sleep(Duration::from_millis(self.limits.wall_ms));
        tokio::pin!(clock);
        let mut stop_open = true;
        loop {
            let message = tokio::select! {
                biased;
                stopped = &mut stop, if stop_open => match stopped {
                    Ok(why) => return Ended::Limit(End::Stopped(why)),
                    Err(_) => { stop_open = false; continue }
                },
                _ = closing.wait_for(|closing| *closing) => return Ended::Limit(End::Stopped(Stop::Killed)),
                () = &mut clock => return Ended::Limit(End::Clock),
                ending = &mut watch => return Ended::Limit(End::Watch(ending)),
                () = tell(&self.events, &mut self.untold), if self.untold.is_some() => continue,
                message = self.inside.reader.next(), if self.untold.is_none() => message,
            };
            let Ok(message) = message else { return Ended::Limit(End::Watch(Ending::Gone)) };
            if let Some(ended) = self.take(message).await {
                return ended;
            }
        }
    }

    /// Deals with one message; `Some` when the run is over.
    async fn take(&mut self, message: FromGuest) -> Option<Ended> {
        match message {
            FromGuest::Output { process: PREPARE, stream, data } => {
                if let (Some(ready), Stream::Stdout) = (&mut self.ready, stream) {
                    ready.ear.hear(&data);
                }
                None
            }
            FromGuest::Exited { process: PREPARE, exit } => self.order(exit).await,
            FromGuest::Failed { request: PREPARE, .. } => self.order(Exit::Code(127)).await,
            FromGuest::Output { stream, data, .. } => {
                let kept = self.output.keep(stream, &data);
                if self.events.is_some() && !kept.is_empty() {
                    self.untold = Some(RunEvent::Output { stream, data: kept.to_vec() });
                }
                self.output.overflowed.then_some(Ended::Limit(End::Output))
            }
            FromGuest::Control { process, data } if process == self.process => {
                self.ear.hear(&data);
                self.listen_for_name(&data);
                self.done().map(|done| Ended::Over(End::Program(Exit::Code(done.exit_code))))
            }
            FromGuest::Exited { process, exit } => {
                self.inside.forget(process);
                (process == self.process).then_some(Ended::ByItself(exit))
            }
            FromGuest::Failed { request, .. } if request == self.process => {
                self.inside.forget(request);
                Some(Ended::ByItself(Exit::Code(127)))
            }
            _ => None,
        }
    }

    /// The program is ready, or never will be: the driver is told, or the run is over.
    async fn order(&mut self, exit: Exit) -> Option<Ended> {
        let ready = self.ready.take()?;
        if ready.is_required && exit != Exit::Code(0) {
            self.refused = ready.ear.done();
            return Some(Ended::Over(End::Compile(exit)));
        }
        let order = if exit == Exit::Code(0) { ready.order } else { ready.order_as_it_is };
        for piece in order.chunks(CHUNK_BYTES_MAX) {
            let message = ToGuest::Control { process: self.process, data: piece.to_vec() };
            if self.inside.writer.send(&message).await.is_err() {
                return Some(Ended::Limit(End::Watch(Ending::Gone)));
            }
        }
        None
    }

    /// Words that never name this run are not read again and again: there may be a megabyte of them.
    fn listen_for_name(&mut self, data: &[u8]) {
        self.heard.extend_from_slice(data);
        let id = self.id.as_bytes();
        self.is_named |= self.heard.windows(id.len().max(1)).any(|words| words == id);
        let surplus = self.heard.len().saturating_sub(id.len());
        self.heard.drain(..surplus);
    }

    fn done(&self) -> Option<Done> {
        if !self.is_named {
            return None;
        }
        self.ear.done_of(&self.id)
    }

    /// Asks the program to stop; if it does not listen, ends its interpreter.
    async fn make_let_go(&mut self, end: End) -> Afterwards {
        let is_hopeless = matches!(end, End::Watch(Ending::Memory));
        if self.ready.take().is_some() {
            // It never got as far as the interpreter.
            self.signal(PREPARE, SIGKILL).await;
            return if self.hear_for(KILL_PATIENCE, PREPARE).await == Some(Heard::Exited) {
                Afterwards::Kept
            } else {
                Afterwards::Gone
            };
        }
        for patience in INTERRUPTS.iter().filter(|_| !is_hopeless) {
            self.signal(self.process, SIGINT).await;
            match self.hear_for(*patience, self.process).await {
                Some(Heard::Done) => return Afterwards::Kept,
                Some(Heard::Exited) => return Afterwards::Ended,
                None => {}
            }
        }
        self.signal(self.process, SIGKILL).await;
        match self.hear_for(KILL_PATIENCE, self.process).await {
            Some(_) => Afterwards::Killed,
            None => Afterwards::Gone,
        }
    }

    async fn signal(&mut self, process: u32, signal: i32) {
        // A guest that cannot be reached is found out by what does not follow.
        self.inside.writer.send(&ToGuest::Signal { process, signal }).await.ok();
    }

    /// Listens for a while to whether the run, or a process, is over.
    async fn hear_for(&mut self, patience: Duration, process: u32) -> Option<Heard> {
        let hear = async {
            loop {
                let message = self.inside.reader.next().await.ok()?;
                if matches!(message, FromGuest::Exited { process: ended, .. } if ended == process) {
                    self.inside.forget(process);
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

    /// What the program wrote before it said that it was done.
    async fn hear_rest(&mut self) {
        let (process, output) = (self.process, &mut self.output);
        let hear = |message| {
            if let FromGuest::Output { stream, data, .. } = message {
                output.keep(stream, &data);
            }
        };
        // What cannot be heard now is heard by the next run.
        self.inside.catch_up(process, hear).await.ok();
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
