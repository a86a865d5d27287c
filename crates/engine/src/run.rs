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
use sandbox::{BackendError, Outcome, PlacedFile, ReadOnlyBind, Sandbox, SandboxSpec, Usage, WORKSPACE};
use tokio::sync::{mpsc, oneshot};
use wire::{CHUNK_BYTES_MAX, FileKind, FromGuest, OpenProcess, STDIN_WINDOW_BYTES, Stream, ToGuest};

use crate::admission::Permit;
use crate::driver::{self, DriverEar, DriverRun};
use crate::guest_client::{self, GuestError, GuestReader, GuestWriter};
use crate::output::Output;
use crate::request::{RunRequest, Stdin};
use crate::result::{Artifact, RunError, RunResult, RunUsage, Value};
use crate::runtimes::{Runtime, RuntimeError};
use crate::verdict::{self, End, Verdict};
use crate::{Engine, variables};

/// The one program of a fresh run.
const MAIN: u32 = 1;
/// Files looked at after a run, and how much of them is brought back.
const ARTIFACTS_MAX: u32 = 4096;
const ARTIFACT_BYTES_MAX: usize = 64 << 20;
/// How long that may take.
const COLLECT_PATIENCE: Duration = Duration::from_secs(10);
/// Files left out that are told one by one.
const LEFT_OUT_MAX: usize = 20;
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
        mut stop: oneshot::Receiver<Stop>,
    ) -> RunResult {
        let name = self.backend().name();
        let prepared = tokio::select! {
            biased;
            // A run that is stopped while it waits for its turn gives up its place in the queue at once.
            Ok(stopped) = &mut stop => Err(Unstarted::stopped(stopped)),
            prepared = self.prepare(&request) => prepared,
        };
        match prepared {
            Ok(prepared) => prepared.run(self, request, events, stop).await,
            Err(Unstarted { outcome, error }) => RunResult::unstarted(outcome, name, error),
        }
    }

    async fn prepare(&self, request: &RunRequest) -> Result<Prepared, Unstarted> {
        request.check()?;
        let runtime = self.runtimes().find(&request.language).await?;
        check_names(request, &runtime)?;
        let allowed = match policy::decide(self.policy(), runtime.floor(), &request.ask) {
            Decision::Allow(allowed) => allowed,
            Decision::Deny(denial) => {
                return Err(RunError::new(denial.code, denial.reason).remedy(denial.remedy).into());
            }
        };
        let permit = self.admission.admit(allowed.limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        let spec = SandboxSpec {
            limits: allowed.limits.clone(),
            binds: runtime.binds().iter().map(|path| ReadOnlyBind { path: path.clone() }).collect(),
            files: vec![PlacedFile { path: runtime.driver_path(), content: runtime.driver().to_vec() }],
            opening: opening(&runtime)?,
            absence_allowed: self.policy().absence_allowed.clone(),
        };
        let sandbox = self.backend().create(&spec).await.map_err(Unstarted::wall)?;
        // No silent fallback: a wall with a promise missing is taken down again.
        let missing = sandbox.enforced().missing(&spec.absence_allowed);
        if !missing.is_empty() {
            return Err(Unstarted::incomplete(&missing));
        }
        Ok(Prepared { runtime, allowed, permit, sandbox, started })
    }
}

/// Names that this language keeps for itself.
fn check_names(request: &RunRequest, runtime: &Runtime) -> Result<(), RunError> {
    if let Some(name) = request.variables.keys().find(|name| runtime.reserves(name)) {
        let message =
            format!("`{name}` cannot be a variable: {} keeps that name for itself", request.language);
        return Err(RunError::bad("variables", &message, "rename it"));
    }
    let source = runtime.source();
    if request.inputs.iter().any(|input| input.path == source) {
        let message = format!("`{source}` is where the program itself goes");
        return Err(RunError::bad("inputs", &message, "give the input another name"));
    }
    Ok(())
}

/// The interpreter's start, which needs no program and may go ahead while the wall is examined.
fn opening(runtime: &Runtime) -> Result<Vec<u8>, RunError> {
    let (argv, env) = runtime.command();
    let open = OpenProcess { process: MAIN, argv, env, cwd: WORKSPACE.to_owned() };
    wire::encode(&ToGuest::Open(open)).map_err(|error| RunError::new("language_broken", error.to_string()))
}

/// A run that did not start.
struct Unstarted {
    outcome: Outcome,
    error: RunError,
}

impl From<RunError> for Unstarted {
    fn from(error: RunError) -> Self {
        Self { outcome: Outcome::Refused, error }
    }
}

impl From<RuntimeError> for Unstarted {
    fn from(error: RuntimeError) -> Self {
        RunError::new(error.code(), error.to_string()).remedy(error.remedy()).into()
    }
}

impl Unstarted {
    fn stopped(stop: Stop) -> Self {
        let limits = sandbox::Limits::default();
        let Verdict { outcome, error, .. } = verdict::judge(End::Stopped(stop), &Usage::default(), &limits);
        Self { outcome, error: error.unwrap_or_default() }
    }

    fn busy(busy: crate::Busy) -> Self {
        let mut error = RunError::new("busy", busy.reason);
        error.retryable = busy.retry_after_ms > 0;
        error.retry_after_ms = error.retryable.then_some(busy.retry_after_ms);
        Self { outcome: Outcome::Unavailable, error }
    }

    fn wall(error: BackendError) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let mut told = RunError::new("wall_unavailable", error.to_string());
        told.cause = cause;
        told.remedy = Some(match error {
            BackendError::Unsupported { remedy, .. } => remedy,
            _ => "run `palisade doctor` on the server".to_owned(),
        });
        Self { outcome: Outcome::Unavailable, error: told }
    }

    fn incomplete(missing: &[sandbox::Guarantee]) -> Self {
        let names: Vec<&str> = missing.iter().map(|guarantee| guarantee.name()).collect();
        let message = format!("this machine cannot enforce {}", names.join(", "));
        let remedy = "run `palisade doctor` on the server; an operator may accept the absence by name";
        RunError::new("guarantee_missing", message).remedy(remedy).into()
    }
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
        result.usage.wall_ms = millis(running.elapsed());
        result.phases.parts_us.push(("program", micros(running.elapsed())));
        if request.collect_files && matches!(end, End::Program(_)) {
            let collect = session.collect(&request.inputs, self.runtime.source());
            match tokio::time::timeout(COLLECT_PATIENCE, collect).await {
                Ok(collected) => (result.artifacts, result.warnings) = collected,
                Err(_) => {
                    result.warnings.push("the program's files could not be brought back in time".to_owned())
                }
            }
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
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        let path = format!("{WORKSPACE}/{source}");
        // The code is in the file: a driver reads it from there much faster than from the channel.
        let run = DriverRun { source: &path, code: "", variables: &variables, args: &request.args };
        writer.control(MAIN, &driver::fresh_run(&run)).await?;
        let output = Output::new(self.allowed.limits.output_bytes);
        let (ear, events, untold, unsent) = (DriverEar::default(), None, None, Vec::new());
        Ok(Session { reader, writer, output, ear, events, untold, unsent, unsent_window: STDIN_WINDOW_BYTES })
    }

    /// Carries input and output until something ends the run. No wait in here holds up the clock: a caller
    /// that does not listen, or a guest that does not read, only holds up its own program.
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
        let mut stop_open = !stop.is_terminated();
        loop {
            let window = session.unsent_window;
            let Session { reader, writer, events, untold, unsent, .. } = &mut *session;
            tokio::select! {
                biased;
                stopped = &mut stop, if stop_open => match stopped {
                    Ok(stop) => return End::Stopped(stop),
                    Err(_) => stop_open = false,
                },
                () = &mut clock => return End::Clock,
                ending = &mut watch => return End::Watch(ending),
                () = tell(events, untold), if untold.is_some() => {}
                message = reader.next(), if untold.is_none() => match message {
                    Ok(message) => if let Some(end) = session.take(message) { return end },
                    Err(_) => return End::Lost,
                },
                written = writer.write(unsent), if !unsent.is_empty() => {
                    // Nobody reads any more; what the guest said before still decides.
                    if written.is_err() { unsent.clear(); stdin = Feed::Over }
                }
                piece = stdin.next(window), if unsent.is_empty() && stdin.wants(window) => session.feed(piece),
            }
        }
    }

    fn conclude(&self, mut result: RunResult, session: Session, end: End, usage: Usage) -> RunResult {
        let Verdict { outcome, error, warnings } = verdict::judge(end, &usage, &self.allowed.limits);
        let Session { output, ear, .. } = session;
        let done = ear.done().unwrap_or_default();
        result.outcome = outcome;
        result.exit = if let End::Program(exit) = end { Some(exit) } else { None };
        (result.stdout, result.stderr) = (output.stdout, output.stderr);
        result.warnings.extend(warnings);
        result.error = error.map(|error| match done.error_message {
            Some(message) if outcome == Outcome::Failed => RunError {
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
            GuestError::Refused { errno } => {
                (told.code, told.remedy) = explain_refusal(*errno);
                Outcome::Refused
            }
            _ if usage.oom_kills > 0 => Outcome::OutOfMemory,
            _ => Outcome::Unavailable,
        };
        result.error = Some(told);
        result
    }
}

/// Why a file could not be placed, from the kernel's answer inside the sandbox.
fn explain_refusal(errno: i32) -> (String, Option<String>) {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    let (code, remedy) = if [ENOSPC, EDQUOT].contains(&errno) {
        ("inputs_do_not_fit", "give a larger limits.disk_mb, or send fewer or smaller inputs")
    } else {
        (
            "bad_inputs",
            "check the inputs' paths: one may be a directory of another, or longer than a name may be",
        )
    };
    (code.to_owned(), Some(remedy.to_owned()))
}

/// The conversation with a guest during one run.
struct Session {
    reader: GuestReader,
    writer: GuestWriter,
    output: Output,
    ear: DriverEar,
    events: Option<mpsc::Sender<RunEvent>>,
    /// News that the caller has not taken yet; nothing more is read from the guest meanwhile.
    untold: Option<RunEvent>,
    /// A frame that the guest has not taken yet.
    unsent: Vec<u8>,
    /// How much standard input may still be sent before the guest says it was taken.
    unsent_window: usize,
}

/// Hands news to the caller; safe to cancel. A caller that stopped listening still gets the result.
async fn tell(events: &Option<mpsc::Sender<RunEvent>>, untold: &mut Option<RunEvent>) {
    let place = match events {
        Some(sender) => sender.reserve().await.ok(),
        None => None,
    };
    if let (Some(news), Some(place)) = (untold.take(), place) {
        place.send(news);
    }
}

impl Session {
    /// Deals with one message; `Some` when it ends the run.
    fn take(&mut self, message: FromGuest) -> Option<End> {
        match message {
            FromGuest::Output { stream, data, .. } => {
                let kept = self.output.keep(stream, &data);
                if self.events.is_some() && !kept.is_empty() {
                    self.untold = Some(RunEvent::Output { stream, data: kept.to_vec() });
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

    /// Makes the next piece of standard input ready to be sent.
    fn feed(&mut self, piece: Option<Vec<u8>>) {
        let message = match piece {
            Some(data) => {
                self.unsent_window = self.unsent_window.saturating_sub(data.len());
                ToGuest::Stdin { process: MAIN, data }
            }
            None => ToGuest::StdinEnd { process: MAIN },
        };
        self.unsent = wire::encode(&message).unwrap_or_default();
    }

    /// Output that was on its way when the sandbox was killed.
    async fn read_rest(&mut self, end: End) {
        let read = async {
            tell(&self.events, &mut self.untold).await;
            if matches!(end, End::Program(_)) {
                return;
            }
            while let Some(message) = self.reader.rest().await {
                self.take(message);
                tell(&self.events, &mut self.untold).await;
            }
        };
        tokio::time::timeout(REST_PATIENCE, read).await.ok();
    }

    /// Files that the run made or changed, as far as they fit, and a word about those that do not.
    async fn collect(&mut self, inputs: &[crate::InputFile], source: &str) -> (Vec<Artifact>, Vec<String>) {
        // What the program left running must not write on, nor keep the guest waiting for a processor.
        self.writer.send(&ToGuest::KillRest).await.ok();
        let listed = guest_client::list_files(&mut self.reader, &mut self.writer, ARTIFACTS_MAX).await;
        let listed = listed.unwrap_or_default();
        let mut warnings = Vec::new();
        if listed.len() >= ARTIFACTS_MAX as usize {
            warnings.push(format!("only the first {ARTIFACTS_MAX} files were looked at"));
        }
        let mut room = ARTIFACT_BYTES_MAX;
        let mut artifacts = Vec::new();
        for entry in
            listed.into_iter().filter(|entry| entry.kind == FileKind::Regular && entry.path != source)
        {
            let left_out = |reason: &str| format!("{} was left out: {reason}", entry.path.escape_debug());
            if entry.size_bytes > room as u64 {
                warnings.push(left_out("it does not fit what is brought back from one run"));
                continue;
            }
            if !crate::request::is_plain_path(&entry.path) {
                warnings.push(left_out("its name is not plain text"));
                continue;
            }
            match guest_client::read_file(&mut self.reader, &mut self.writer, &entry.path, room).await {
                Ok(content)
                    if inputs.iter().any(|input| input.path == entry.path && input.content == content) => {}
                Ok(content) => {
                    room -= content.len().min(room);
                    artifacts.push(Artifact { path: entry.path, content });
                }
                Err(_) => warnings.push(left_out("it cannot be read")),
            }
            if warnings.len() > LEFT_OUT_MAX {
                break;
            }
        }
        (artifacts, warnings)
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
