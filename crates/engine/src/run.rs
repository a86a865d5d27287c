//! One run from request to result.
//!
//! ```text
//! check -> runtime -> decide -> admit -> create -> all guarantees? -> place files -> open -> run
//!                                                                                             |
//!                      result <- judge <- destroy <- (program ended | clock | output | watch | stop)
//! ```
//! The sandbox lives exactly as long as [`Session`]; leaving this module by any path destroys it.

use std::time::{Duration, Instant};

use policy::{Allowed, Decision};
use sandbox::{Limits, Outcome, Sandbox, SandboxSpec, Usage, WORKSPACE};
use tokio::sync::{mpsc, oneshot};
use wire::{CHUNK_BYTES_MAX, Exit, FileKind, FromGuest, OpenProcess, STDIN_WINDOW_BYTES, Stream, ToGuest};

use crate::admission::Permit;
use crate::driver::{self, DriverEar, DriverRun};
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};
use crate::output::Output;
use crate::request::{RunRequest, Stdin};
use crate::result::{Artifact, RunError, RunResult, RunUsage, Value};
use crate::runtimes::{Call, Runtime};
use crate::unstarted::Unstarted;
use crate::verdict::{self, End, Verdict};
use crate::{Engine, variables};

/// The one program of a fresh run.
const MAIN: u32 = 1;
/// What makes its program ready.
const PREPARE: u32 = 2;
/// The mode of a driver in which one run is all.
const FRESH: &str = "last";
/// Files looked at after a run, and how much of them is brought back.
const ARTIFACTS_MAX: u32 = 4096;
const ARTIFACT_BYTES_MAX: usize = 64 << 20;
/// What may still be read from a sandbox that was killed.
const REST_PATIENCE: Duration = Duration::from_millis(200);

/// Who stopped a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The caller.
    Cancelled,
    /// An operator, a close or a shutdown.
    Killed,
}

/// News of a run in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// It wrote something.
    Output {
        /// Which stream.
        stream: Stream,
        /// What.
        data: Vec<u8>,
    },
}

impl Engine {
    /// Runs one program in a fresh sandbox. News go to `events` as they come, and whoever holds the other end
    /// of `stop` can end it. Dropping the future destroys the sandbox.
    pub async fn run(
        &self,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        stop: oneshot::Receiver<Stop>,
    ) -> RunResult {
        let name = self.backend().name();
        match self.prepare(&request).await {
            Ok(prepared) => prepared.run(self, request, events, stop).await,
            Err(Unstarted { outcome, error }) => RunResult::unstarted(outcome, name, error),
        }
    }

    async fn prepare(&self, request: &RunRequest) -> Result<Prepared, Unstarted> {
        request.check()?;
        let runtime = self.runtimes().find(&request.language).await?;
        let allowed = match policy::decide(self.policy(), runtime.floor(), &request.ask) {
            Decision::Allow(allowed) => allowed,
            Decision::Deny(denial) => {
                return Err(RunError::new(denial.code, denial.reason).remedy(denial.remedy).into());
            }
        };
        let permit = self.admission.admit(allowed.limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        let sandbox = self.build(&runtime, &allowed.limits, opening(&runtime)?).await?;
        Ok(Prepared { runtime, allowed, permit, sandbox, started })
    }

    /// A sandbox for that runtime, complete or not at all; `opening` is what its guest is told first.
    pub(crate) async fn build(
        &self,
        runtime: &Runtime,
        limits: &Limits,
        opening: Vec<u8>,
    ) -> Result<Box<dyn Sandbox>, Unstarted> {
        let spec = SandboxSpec {
            limits: limits.clone(),
            binds: runtime.read_only_binds(self.executable.as_deref()),
            files: runtime.placed_files(),
            opening,
            absence_allowed: self.policy().absence_allowed.clone(),
        };
        let sandbox = self.backend().create(&spec).await.map_err(Unstarted::wall)?;
        // No silent fallback: a wall with a promise missing is taken down again.
        let missing = sandbox.enforced().missing(&spec.absence_allowed);
        if missing.is_empty() { Ok(sandbox) } else { Err(Unstarted::incomplete(&missing)) }
    }
}

/// The interpreter's start, which needs no program and may go ahead while the wall is examined.
fn opening(runtime: &Runtime) -> Result<Vec<u8>, RunError> {
    let argv = runtime.command(&Call { mode: FRESH, source: &runtime.source_path() });
    let open = OpenProcess { process: MAIN, argv, env: runtime.environment(), cwd: WORKSPACE.to_owned() };
    wire::encode(&ToGuest::Open(open)).map_err(|error| RunError::new("language_broken", error.to_string()))
}

/// A run that has everything it needs.
struct Prepared {
    runtime: std::sync::Arc<Runtime>,
    allowed: Allowed,
    permit: Permit,
    sandbox: Box<dyn Sandbox>,
    started: Instant,
}

impl Prepared {
    async fn run(
        mut self,
        engine: &Engine,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        stop: oneshot::Receiver<Stop>,
    ) -> RunResult {
        let mut result = RunResult::unstarted(Outcome::Killed, engine.backend().name(), RunError::default());
        result.enforced = self.sandbox.enforced().clone();
        result.phases = self.sandbox.phases().clone();
        result.clamped = std::mem::take(&mut self.allowed.clamped);
        result.usage.queued_ms = millis(self.permit.queued);
        let created = Instant::now();
        let mut session = match self.open_session(&request).await {
            Ok(session) => session,
            Err(error) => return self.fail(result, &error).await,
        };
        session.events = events;
        result.usage.start_ms = millis(self.started.elapsed());
        result.phases.parts_us.push(("guest", micros(created.elapsed())));
        let running = Instant::now();
        let end = self.follow(&mut session, request.stdin, stop).await;
        if matches!(end, End::Compile(_)) {
            session.tell_compile_failure(self.runtime.source()).await;
        }
        result.usage.wall_ms = millis(running.elapsed());
        result.phases.parts_us.push(("program", micros(running.elapsed())));
        if request.collect_files && matches!(end, End::Program(_)) {
            result.artifacts = session.collect(&request.inputs, self.runtime.source()).await;
        }
        let ended = Instant::now();
        let usage = self.sandbox.destroy().await.unwrap_or_default();
        result.phases.parts_us.push(("teardown", micros(ended.elapsed())));
        session.read_rest(end).await;
        self.conclude(result, session, end, usage)
    }

    /// Places the files and hands the program to the interpreter, which has been starting meanwhile.
    async fn open_session(&mut self, request: &RunRequest) -> Result<Session, GuestError> {
        let stream = self.sandbox.take_stream().ok_or(GuestError::Gone)?;
        let (mut reader, mut writer) = guest_client::connect(stream).await?;
        for input in &request.inputs {
            guest_client::put_file(&mut reader, &mut writer, &input.path, &input.content).await?;
        }
        let source = self.runtime.source();
        guest_client::put_file(&mut reader, &mut writer, source, request.code.as_bytes()).await?;
        let path = self.runtime.source_path();
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        // The code is in the file: a driver reads it from there much faster than from the channel.
        let run = DriverRun { source: &path, code: "", variables: &variables, args: &request.args };
        let order = driver::fresh_run(&run);
        let call = Call { mode: FRESH, source: &path };
        let preparation = match self.runtime.prepare_command(&call) {
            Some((argv, is_required)) => {
                let (env, cwd) = (self.runtime.environment(), WORKSPACE.to_owned());
                writer.send(&ToGuest::Open(OpenProcess { process: PREPARE, argv, env, cwd })).await?;
                Some(Preparation { is_required, order, ear: DriverEar::default() })
            }
            None => {
                writer.control(MAIN, &order).await?;
                None
            }
        };
        Ok(Session {
            reader,
            writer,
            output: Output::new(self.allowed.limits.output_bytes),
            ear: DriverEar::default(),
            preparation,
            events: None,
            unsent_window: STDIN_WINDOW_BYTES,
        })
    }

    /// Carries input and output until something ends the run.
    async fn follow(
        &mut self,
        session: &mut Session,
        stdin: Stdin,
        mut stop: oneshot::Receiver<Stop>,
    ) -> End {
        let clock = tokio::time::sleep(Duration::from_millis(self.allowed.limits.wall_ms));
        tokio::pin!(clock);
        let mut stdin = Feed::new(stdin);
        let mut watch = self.sandbox.watch();
        let mut stop_open = true;
        loop {
            let window = session.unsent_window;
            tokio::select! {
                biased;
                stopped = &mut stop, if stop_open => match stopped {
                    Ok(stop) => return End::Stopped(stop),
                    Err(_) => stop_open = false,
                },
                () = &mut clock => return End::Clock,
                ending = &mut watch => match ending {
                    // What the guest said before is still in the stream; its end comes by itself.
                    sandbox::Ending::Gone => return End::Watch(sandbox::Ending::Gone),
                    other => return End::Watch(other),
                },
                message = session.reader.next() => match message {
                    Ok(message) => if let Some(end) = session.take(message).await { return end },
                    Err(_) => return End::Lost,
                },
                piece = stdin.next(window), if stdin.wants(window) => {
                    if session.feed(piece).await.is_err() { return End::Lost }
                }
            }
        }
    }

    fn conclude(&self, mut result: RunResult, session: Session, end: End, usage: Usage) -> RunResult {
        let Verdict { outcome, error, warnings } = verdict::judge(end, &usage, &self.allowed.limits);
        let Session { output, ear, preparation, .. } = session;
        let said = match end {
            End::Compile(_) => preparation.and_then(|preparation| preparation.ear.done()),
            _ => ear.done(),
        };
        let done = said.unwrap_or_default();
        result.outcome = outcome;
        result.exit = match end {
            End::Program(exit) => Some(exit),
            End::Compile(_) => Some(Exit::Code(1)),
            _ => None,
        };
        (result.stdout, result.stderr) = (output.stdout, output.stderr);
        result.warnings = warnings;
        result.error = error.map(|error| match done.error_message {
            Some(message) if matches!(outcome, Outcome::Failed | Outcome::CompileFailed) => RunError {
                message,
                line: done.error_line,
                column: done.error_column,
                cause: Some(error.message),
                ..error
            },
            _ => error,
        });
        result.value = done.value_repr.map(|repr| Value {
            repr,
            json: done.value_json.and_then(|text| serde_json::from_str(&text).ok()),
            mime: done.value_mime,
        });
        let RunUsage { wall_ms, queued_ms, start_ms, .. } = result.usage;
        result.usage = RunUsage {
            wall_ms,
            cpu_ms: usage.cpu_us as f64 / 1000.0,
            memory_peak_bytes: usage.memory_peak_bytes,
            processes_peak: usage.processes_peak,
            queued_ms,
            start_ms,
        };
        result
    }

    /// The files did not fit or the guest was lost before the program began.
    async fn fail(mut self, mut result: RunResult, error: &GuestError) -> RunResult {
        let usage = self.sandbox.destroy().await.unwrap_or_default();
        let message = "the program's files could not be placed in the sandbox";
        let mut told = RunError::new("sandbox_failed", message);
        told.cause = Some(error.to_string());
        result.outcome = match error {
            GuestError::NotStarted { .. } => {
                told.code = "language_broken".to_owned();
                told.message = "the interpreter could not be started in the sandbox".to_owned();
                Outcome::Unavailable
            }
            GuestError::Refused { .. } => {
                told.code = "inputs_do_not_fit".to_owned();
                told.remedy =
                    Some("give a larger limits.disk_mb, or send fewer or smaller inputs".to_owned());
                Outcome::Refused
            }
            _ if usage.oom_kills > 0 => Outcome::OutOfMemory,
            _ => Outcome::Unavailable,
        };
        result.error = Some(told);
        result
    }
}

/// The conversation with a guest during one run.
struct Session {
    reader: GuestReader,
    writer: GuestWriter,
    output: Output,
    ear: DriverEar,
    /// Present until the program is ready and the driver was told to run it.
    preparation: Option<Preparation>,
    events: Option<mpsc::Sender<RunEvent>>,
    /// How much standard input may still be sent before the guest says it was taken.
    unsent_window: usize,
}

/// A program that is being made ready.
struct Preparation {
    /// Whether the program runs only if this succeeds.
    is_required: bool,
    /// What the driver will be told.
    order: Vec<u8>,
    ear: DriverEar,
}

impl Session {
    /// Deals with one message; `Some` when it ends the run.
    async fn take(&mut self, message: FromGuest) -> Option<End> {
        match message {
            FromGuest::Output { process: PREPARE, stream, data } => {
                if let (Some(preparation), Stream::Stdout) = (&mut self.preparation, stream) {
                    preparation.ear.hear(&data);
                }
                None
            }
            FromGuest::Exited { process: PREPARE, exit } => self.prepared(exit).await,
            FromGuest::Failed { request: PREPARE, .. } => self.prepared(Exit::Code(127)).await,
            FromGuest::Output { stream, data, .. } => {
                let kept = self.output.keep(stream, &data).to_vec();
                if let Some(events) = self.events.as_ref().filter(|_| !kept.is_empty()) {
                    // A caller that stopped listening still gets the result.
                    events.send(RunEvent::Output { stream, data: kept }).await.ok();
                }
                self.output.overflowed.then_some(End::Output)
            }
            FromGuest::Control { data, .. } => {
                self.ear.hear(&data);
                None
            }
            FromGuest::StdinTaken { bytes, .. } => {
                self.unsent_window = (self.unsent_window + bytes as usize).min(STDIN_WINDOW_BYTES);
                None
            }
            FromGuest::Exited { process: MAIN, exit } => Some(End::Program(exit)),
            FromGuest::Failed { request: MAIN, .. } => Some(End::Lost),
            _ => None,
        }
    }

    /// The program is ready, or never will be.
    async fn prepared(&mut self, exit: Exit) -> Option<End> {
        let preparation = self.preparation.as_ref()?;
        if preparation.is_required && exit != Exit::Code(0) {
            return Some(End::Compile(exit));
        }
        let order = self.preparation.take()?.order;
        self.writer.control(MAIN, &order).await.is_err().then_some(End::Lost)
    }

    /// What a compiler would have written.
    async fn tell_compile_failure(&mut self, source: &str) {
        let done = self.preparation.as_ref().and_then(|it| it.ear.done()).unwrap_or_default();
        let Some(message) = done.error_message else { return };
        let place = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let text = format!("{source}{}{}: {message}\n", place(done.error_line), place(done.error_column));
        let data = text.into_bytes();
        self.take(FromGuest::Output { process: MAIN, stream: Stream::Stderr, data }).await;
    }

    async fn feed(&mut self, piece: Option<Vec<u8>>) -> Result<(), GuestError> {
        match piece {
            Some(data) => {
                self.unsent_window = self.unsent_window.saturating_sub(data.len());
                self.writer.send(&ToGuest::Stdin { process: MAIN, data }).await
            }
            None => self.writer.send(&ToGuest::StdinEnd { process: MAIN }).await,
        }
    }

    /// Output that was on its way when the sandbox was killed.
    async fn read_rest(&mut self, end: End) {
        if matches!(end, End::Program(_)) {
            return;
        }
        let read = async {
            while let Some(message) = self.reader.rest().await {
                self.take(message).await;
            }
        };
        tokio::time::timeout(REST_PATIENCE, read).await.ok();
    }

    /// Files that the run made or changed, as far as they fit.
    async fn collect(&mut self, inputs: &[crate::InputFile], source: &str) -> Vec<Artifact> {
        let listed = guest_client::list_files(&mut self.reader, &mut self.writer, ARTIFACTS_MAX).await;
        let mut room = ARTIFACT_BYTES_MAX;
        let mut artifacts = Vec::new();
        for entry in listed.unwrap_or_default() {
            let is_wanted = entry.kind == FileKind::Regular && entry.path != source;
            if !is_wanted || !crate::request::is_plain_path(&entry.path) || room == 0 {
                continue;
            }
            let read = guest_client::read_file(&mut self.reader, &mut self.writer, &entry.path, room).await;
            let Ok(content) = read else { continue };
            let is_input = inputs.iter().any(|input| input.path == entry.path && input.content == content);
            if !is_input {
                room -= content.len().min(room);
                artifacts.push(Artifact { path: entry.path, content });
            }
        }
        artifacts
    }
}

/// Standard input in pieces.
enum Feed {
    Bytes(Vec<u8>, usize),
    Stream(mpsc::Receiver<Vec<u8>>, Vec<u8>),
    Over,
}

impl Feed {
    fn new(stdin: Stdin) -> Self {
        match stdin {
            Stdin::Empty => Self::Bytes(Vec::new(), 0),
            Stdin::Bytes(bytes) => Self::Bytes(bytes, 0),
            Stdin::Stream(receiver) => Self::Stream(receiver, Vec::new()),
        }
    }

    fn wants(&self, window: usize) -> bool {
        window > 0 && !matches!(self, Self::Over)
    }

    /// The next piece; `None` is the end, given once. Safe to cancel.
    async fn next(&mut self, window: usize) -> Option<Vec<u8>> {
        let most = window.min(CHUNK_BYTES_MAX);
        let piece = match self {
            Self::Bytes(bytes, sent) => {
                let piece = bytes[*sent..].chunks(most).next().map(<[u8]>::to_vec);
                *sent += piece.as_ref().map_or(0, Vec::len);
                piece
            }
            Self::Stream(receiver, held) => {
                while held.is_empty() {
                    match receiver.recv().await {
                        Some(bytes) => *held = bytes,
                        None => break,
                    }
                }
                let rest = held.split_off(held.len().min(most));
                let piece = std::mem::replace(held, rest);
                (!piece.is_empty()).then_some(piece)
            }
            Self::Over => None,
        };
        if piece.is_none() {
            *self = Self::Over;
        }
        piece
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
