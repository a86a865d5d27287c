//! Conversations with an interpreter that outlives the run, in a persistent sandbox.
//!
//! Such an interpreter may have died or been stopped between two runs. When a run meets a limit, the host
//! interrupts the program first and kills the interpreter only if it does not react.
//!
//! The host waits for nothing before it sends the order. It sends a sync question first, and the guest answers
//! it before it handles later messages:
//!
//! - If the guest reports the interpreter's end before the answer, the interpreter died between two runs. It
//!   never saw the order, which then goes to a new interpreter.
//! - If the guest reports the end after the answer, this run ended the interpreter.
//!
//! The sync question also resumes an interpreter that a program had stopped. If the interpreter is still
//! stopped a while later, with the order unread, the host replaces it.

use std::time::Duration;

use sandbox::{Ending, Sandbox};
use tokio::time::Instant;
use wire::{Exit, FromGuest, ToGuest};

use super::unpacking::UNPACK;
use super::{
    Conversation, Ended, GuestChannel, HEARS, IDLE, Input, KeptInterpreter, Links, Mode, Overflow, PREPARE,
    REST_PATIENCE, SYNC, Said, State, StopSignals, Terminal,
};
use crate::driver::DriverDecoder;
use crate::feed::Feed;
use crate::guest_client::GuestError;
use crate::output::Output;
use crate::verdict::End;

/// How long the program may take to return control after each of the interrupt signals.
const INTERRUPTS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(700), Duration::from_millis(1500)];
/// A running interpreter reads its order at once. A stopped interpreter that has not read it by then is
/// replaced.
const HEAR_PATIENCE: Duration = Duration::from_secs(2);
const KILL_PATIENCE: Duration = Duration::from_secs(2);
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// The state of a run whose interpreter outlives it.
pub(super) struct Kept<'a> {
    pub(super) interpreter: KeptInterpreter<'a>,
    /// The run's random id. A process that does not know it cannot report the end of this run.
    pub(super) id: String,
    /// The order for the interpreter, kept until the interpreter is known to have read it.
    pub(super) told: Vec<u8>,
    /// When to ask the guest whether the interpreter has read it.
    ask_at: Option<Instant>,
    /// Whether the host replaced an interpreter that did not read its order.
    was_deaf: bool,
    is_fresh: bool,
}

/// The end of such a run, before the verdict.
pub(crate) struct KeptEnd {
    pub(crate) end: End,
    pub(crate) said: Said,
    /// The state of the interpreter after the run.
    pub(crate) interpreter: InterpreterFate,
    /// Whether the interpreter was started for this run.
    pub(crate) is_fresh: bool,
    /// Whether it was started because the previous interpreter was stopped and did not resume.
    pub(crate) was_deaf: bool,
    /// The standard input that was not sent.
    pub(crate) unsent: Feed,
    /// Whether the guest had answered the sync question. Before that, nothing of the run had begun.
    is_begun: bool,
}

impl KeptEnd {
    /// Whether the sandbox was gone before anything of the run had begun in it.
    pub(crate) fn is_unbegun(&self) -> bool {
        self.interpreter == InterpreterFate::Gone
            && !self.is_begun
            && !matches!(self.end, End::Stopped(_) | End::Clock)
    }
}

/// The state of an interpreter after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterpreterFate {
    /// It is alive and has its state.
    Kept,
    /// It ended by itself, with the program.
    Ended,
    /// It did not return control and was killed.
    Killed,
    /// The whole sandbox is gone.
    Gone,
}

#[derive(PartialEq, Eq)]
enum Heard {
    Over,
    Exited,
}

impl<'a> Conversation<'a> {
    /// Creates a conversation with a persistent sandbox. `id` is the random id of this run. Queues the sync
    /// question, and the start of the interpreter if none is alive.
    pub(crate) fn kept(
        mut channel: GuestChannel,
        interpreter: KeptInterpreter<'a>,
        id: String,
        output_bytes: u64,
    ) -> Result<Self, GuestError> {
        let known = channel.awake(interpreter.name);
        channel.writer.queue(&ToGuest::Drain { request: SYNC, process: known.unwrap_or(0) })?;
        let (process, is_fresh) = match known {
            Some(process) => (process, false),
            None => (channel.start(interpreter)?, true),
        };
        let decoder = DriverDecoder::awaiting(&id);
        let kept = Kept { interpreter, id, told: Vec::new(), ask_at: None, was_deaf: false, is_fresh };
        Ok(Self {
            placed: channel.next_placed(),
            channel,
            mode: Mode::Kept(kept),
            state: State::CatchingUp(None),
            process,
            input: Input::default(),
            output: Output::new(output_bytes),
            overflow: Overflow::EndsProgram,
            decoder,
            audience: None,
            links: Links::None,
            redaction: None,
            unpacking: None,
            terminal: Terminal::None,
        })
    }

    pub(super) fn is_catching_up(&self) -> bool {
        matches!(self.state, State::CatchingUp(_))
    }

    pub(super) fn ask_at(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Kept(kept) => kept.ask_at,
            Mode::Once => None,
        }
    }

    pub(super) fn take_answer(&mut self, request: u32) -> Option<Ended> {
        let Mode::Kept(kept) = &mut self.mode else { return None };
        match request {
            SYNC => self.caught_up().is_err().then_some(Ended::Limit(End::Lost)),
            HEARS => {
                kept.told = Vec::new();
                None
            }
            IDLE if matches!(self.state, State::Claimed) => {
                let code = self.decoder.done().unwrap_or_default().exit_code;
                Some(Ended::Over(End::Program(Exit::Code(code))))
            }
            _ => None,
        }
    }

    /// Handles the answer to the sync question. An interpreter that died before the answer is replaced, and the
    /// new one gets the order.
    fn caught_up(&mut self) -> Result<(), GuestError> {
        let State::CatchingUp(preparation) = &mut self.state else { return Ok(()) };
        let preparation = preparation.take();
        self.state = State::Running;
        let Mode::Kept(kept) = &self.mode else { return Ok(()) };
        if self.channel.awake(kept.interpreter.name).is_none() {
            self.start_anew()?;
        }
        self.ask_later();
        if let Some(preparation) = preparation {
            if !self.channel.has_preparer() {
                self.make_ready(&preparation.how)?;
            }
            self.state = State::Preparing(preparation);
        }
        Ok(())
    }

    /// Starts another interpreter and sends it the order of the previous one.
    fn start_anew(&mut self) -> Result<(), GuestError> {
        let Mode::Kept(kept) = &mut self.mode else { return Ok(()) };
        (self.process, kept.is_fresh) = (self.channel.start(kept.interpreter)?, true);
        self.decoder = DriverDecoder::awaiting(&kept.id);
        self.state = State::Running;
        if self.unpacking.is_some() {
            // The order still waits for the files.
            return Ok(());
        }
        self.channel.writer.control(self.process, self.placed, &kept.told)
    }

    /// Handles a driver's message that the program is over. The program can forge that message, so the host
    /// asks the guest to confirm it.
    pub(super) fn claim(&mut self) -> Option<Ended> {
        if self.decoder.done().is_none() || !matches!(self.state, State::Running) {
            return None;
        }
        self.state = State::Claimed;
        let asked = self.channel.writer.queue(&ToGuest::AwaitIdle { request: IDLE, process: self.process });
        asked.is_err().then_some(Ended::Limit(End::Lost))
    }

    /// Schedules the question whether the interpreter reads. A new interpreter cannot have been stopped, so it
    /// gets no question.
    pub(super) fn ask_later(&mut self) {
        let is_unpacking = self.is_unpacking();
        let Mode::Kept(kept) = &mut self.mode else { return };
        if is_unpacking {
            // The order has not been sent.
            return;
        }
        if kept.is_fresh || kept.told.is_empty() {
            kept.told = Vec::new();
        } else {
            kept.ask_at = Some(Instant::now() + HEAR_PATIENCE);
        }
    }

    pub(super) fn ask_whether_it_hears(&mut self) {
        let Mode::Kept(kept) = &mut self.mode else { return };
        kept.ask_at = None;
        // A short message always fits a frame.
        self.channel.writer.queue(&ToGuest::Hears { request: HEARS, process: self.process }).ok();
    }

    /// Sends the order, which a stopped interpreter has not read, to a new interpreter.
    pub(super) fn replace_if_unheard(&mut self) -> Option<Ended> {
        let Mode::Kept(kept) = &mut self.mode else { return None };
        if kept.told.is_empty() {
            return None;
        }
        kept.was_deaf = true;
        let kill = ToGuest::Signal { process: self.process, signal: SIGKILL };
        self.channel.forget(self.process);
        let replaced = self.channel.writer.queue(&kill).and_then(|()| self.start_anew());
        self.ask_later();
        replaced.is_err().then_some(Ended::Limit(End::Lost))
    }

    /// Follows the run until it is over and the state of the interpreter is known.
    pub(crate) async fn play(
        mut self,
        sandbox: &mut dyn Sandbox,
        stops: &mut StopSignals,
        deadline: Instant,
    ) -> (GuestChannel, KeptEnd) {
        let ended = self.follow(sandbox, stops, deadline).await;
        let mut interpreter = match ended {
            Ended::Over(_) => InterpreterFate::Kept,
            Ended::Exited(_) => InterpreterFate::Ended,
            Ended::Limit(End::Lost | End::Watch(Ending::Gone)) => InterpreterFate::Gone,
            Ended::Limit(end) => self.make_let_go(end).await,
        };
        // A program that used a link has begun, whatever the guest says.
        let has_used_links = self.links.are_used();
        self.cut_links().await;
        if interpreter != InterpreterFate::Gone && !self.end_links().await {
            interpreter = InterpreterFate::Gone;
        }
        self.forget_input();
        let unsent = std::mem::replace(&mut self.input.feed, Feed::Over);
        let is_begun = has_used_links || !self.is_catching_up();
        let (is_fresh, was_deaf) = match &self.mode {
            Mode::Kept(kept) => (kept.is_fresh, kept.was_deaf),
            Mode::Once => (true, false),
        };
        tokio::time::timeout(REST_PATIENCE, self.release_held()).await.ok();
        let (channel, said) = self.into_parts();
        (channel, KeptEnd { end: ended.end(), said, interpreter, is_fresh, was_deaf, unsent, is_begun })
    }

    /// Interrupts the program. If it does not react, kills its interpreter.
    async fn make_let_go(&mut self, end: End) -> InterpreterFate {
        if let Mode::Kept(kept) = &mut self.mode {
            // Whether the interpreter read its order no longer matters.
            (kept.told, kept.ask_at) = (Vec::new(), None);
        }
        // A program that waits for a broker can react to the interrupt.
        self.ask_to_end_links().await;
        if self.unpacking.take().is_some() {
            // Nothing reached the interpreter.
            self.state = State::Refused(None);
            self.signal(UNPACK, SIGKILL);
            return match self.hear_for(KILL_PATIENCE, UNPACK).await {
                Some(Heard::Exited) => InterpreterFate::Kept,
                _ => InterpreterFate::Gone,
            };
        }
        let is_hopeless = matches!(end, End::Watch(Ending::Memory | Ending::KernelShare));
        let is_preparing = match &mut self.state {
            State::CatchingUp(preparation) => preparation.take().is_some(),
            State::Preparing(_) => {
                // What it still says about the program gives no order any more.
                self.state = State::Refused(None);
                true
            }
            _ => false,
        };
        if is_preparing {
            // The program never reached the interpreter.
            self.signal(PREPARE, SIGKILL);
            return match self.hear_for(KILL_PATIENCE, PREPARE).await {
                Some(Heard::Exited) => InterpreterFate::Kept,
                _ => InterpreterFate::Gone,
            };
        }
        for patience in INTERRUPTS.iter().filter(|_| !is_hopeless) {
            self.signal(self.process, SIGINT);
            match self.hear_for(*patience, self.process).await {
                Some(Heard::Over) => return InterpreterFate::Kept,
                Some(Heard::Exited) => return InterpreterFate::Ended,
                None => {}
            }
        }
        self.signal(self.process, SIGKILL);
        match self.hear_for(KILL_PATIENCE, self.process).await {
            Some(_) => InterpreterFate::Killed,
            None => InterpreterFate::Gone,
        }
    }

    /// If the guest cannot be reached, the expected answer does not arrive, and the caller handles that.
    fn signal(&mut self, process: u32, signal: i32) {
        self.channel.writer.queue(&ToGuest::Signal { process, signal }).ok();
        self.channel.writer.write_queued_now();
    }

    /// Listens for `patience` for the end of the run or of `process`.
    async fn hear_for(&mut self, patience: Duration, process: u32) -> Option<Heard> {
        let hear = async {
            loop {
                let GuestChannel { reader, writer, .. } = &mut self.channel;
                let message = tokio::select! {
                    biased;
                    message = reader.next() => message.ok()?,
                    // If a message cannot be sent, the expected answer does not arrive, and the caller handles
                    // that.
                    _ = writer.write_queued(), if writer.has_queued() => continue,
                };
                if matches!(message, FromGuest::Exited { process: ended, .. } if ended == process) {
                    self.channel.forget(process);
                    return Some(Heard::Exited);
                }
                if matches!(self.take(message), Some(Ended::Over(_))) {
                    return Some(Heard::Over);
                }
                self.channel.writer.write_queued_now();
                if let Some(audience) = &mut self.audience {
                    audience.give_up();
                }
            }
        };
        tokio::time::timeout(patience, hear).await.ok().flatten()
    }
}
