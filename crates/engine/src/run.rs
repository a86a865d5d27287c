//! One run in a fresh sandbox, from request to result. [`Engine::run`] is the entry point.
//!
//! ```text
//! check -> runtime -> judge -> (compile) -> admit -> lease or create -> all guarantees? -> place files -> order
//!                                                                                                           |
//!     result <- judge <- quiesce, or destroy after a limit <- (program ended | clock | output | watch | stop)
//! ```
//! [`Conversation`], in mode once, handles all messages to and from the guest. The sandbox lives exactly as
//! long as [`Prepared`]; leaving this module by any path destroys it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{Action, Caller, Terms};
use sandbox::{Ending, Outcome, SandboxSpec, Usage, WORKSPACE, WorkspaceRef};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, debug_span};

use crate::admission::Permit;
use crate::compile::Built;
use crate::conclusion::{Begun, Conclusion};
use crate::conversation::{
    Audience, Conversation, MAIN, Overflow, PREPARE, Preparation, RunEvent, Said, StartedProcess, Stop,
    StopSignals,
};
use crate::driver::{self, Done, DriverRun};
use crate::feed::Feed;
use crate::given::{Given, Giving};
use crate::guest_client::GuestError;
use crate::links::Reach;
use crate::output::Output;
use crate::pool::{Lease, Purpose, Want};
use crate::request::{RunRequest, check_names};
use crate::result::{Execution, RunError, RunResult};
use crate::run_spec::opening;
use crate::runtimes::{CpuShare, DriverCall, Preparing, Runtime, is_among};
use crate::unstarted::{Unstarted, explain_guest, unless_stopped};
use crate::verdict::{self, End, Verdict};
use crate::{Engine, Wall, damage, terminal, unpack, variables};

/// The driver mode for an interpreter that executes a single run.
pub(crate) const FRESH: &str = "last";
/// Name prefix of the helper files that the engine places in a persistent workspace. They are not artifacts.
/// They are removed before the program begins, at the latest after the run.
pub(crate) const OWN_FILES: &str = ".palisade-";
/// How long collecting the artifacts may take.
const COLLECT_PATIENCE: Duration = Duration::from_secs(10);

/// A spare that is gone within this time after its lease was already dead when it was leased.
const SPARE_DEATH_WINDOW: Duration = Duration::from_millis(50);
/// How many bytes at the end of standard error are searched for the cause of a failure.
const LAST_WORDS_BYTES: usize = 64 << 10;

/// A persistent sandbox in whose workspace a run takes place.
pub(crate) struct InSandbox<'a> {
    /// The wall that it is behind.
    pub(crate) wall: &'a str,
    pub(crate) workspace: WorkspaceRef,
    /// The language, and the terms on which the call may proceed: its request was checked and judged.
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) terms: Terms,
    /// The file name of the program, where a file of the caller may have the usual one.
    pub(crate) source: Option<String>,
}

impl Engine {
    /// Runs one program in a fresh sandbox. Events go to `events` as they arrive. The holder of the sender of
    /// `stop` can end the run. Dropping the future destroys the sandbox.
    pub async fn run(
        &self,
        caller: &Caller,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        stop: oneshot::Receiver<Stop>,
    ) -> RunResult {
        self.run_in((caller, None), request, &mut Audience::pipe(events), StopSignals::new(stop)).await
    }

    /// Runs one program as [`Engine::run`] does, over a workspace that existed before and outlives the run.
    pub(crate) async fn run_in(
        &self,
        (caller, sandbox): (&Caller, Option<InSandbox<'_>>),
        request: RunRequest,
        audience: &mut Audience,
        stops: StopSignals,
    ) -> RunResult {
        let mut request = request;
        let outside = match self.open_access(caller, &mut request) {
            Ok(outside) => outside,
            Err(refused) => return Unstarted::from(refused).into_result(self.backend().name()),
        };
        let mut result = self.run_opened((caller, sandbox), request, audience, stops).await;
        if let Some(outside) = outside {
            outside.settle(&mut result);
        }
        result
    }

    /// Runs a program whose access is open.
    async fn run_opened(
        &self,
        (caller, sandbox): (&Caller, Option<InSandbox<'_>>),
        mut request: RunRequest,
        audience: &mut Audience,
        mut stops: StopSignals,
    ) -> RunResult {
        // A persistent sandbox stays behind its wall.
        let named = match &sandbox {
            Some(sandbox) => Some(sandbox.wall),
            None => request.wall.as_deref(),
        };
        let wall = match self.known_wall(named) {
            Ok(wall) => wall,
            Err(unknown) => return Unstarted::from(unknown).into_result(self.backend().name()),
        };
        // A run that is stopped while it waits for admission leaves the queue at once.
        let prepared = unless_stopped(&mut stops, self.prepare(caller, wall, &mut request, sandbox)).await;
        match prepared {
            Ok(prepared) => {
                let run = prepared.run(wall, request, audience, stops);
                run.instrument(debug_span!("conversation")).await
            }
            Err(unstarted) => unstarted.into_result(wall.name()),
        }
    }

    async fn prepare(
        &self,
        caller: &Caller,
        wall: &Wall,
        request: &mut RunRequest,
        sandbox: Option<InSandbox<'_>>,
    ) -> Result<Prepared, Unstarted> {
        let (runtime, terms, workspace, source) = match sandbox {
            Some(InSandbox { runtime, terms, workspace, source, .. }) => {
                (runtime, terms, Some(workspace), source)
            }
            None => {
                request.check()?;
                let runtime = wall.runtimes().find(&request.language).await?;
                check_names(request, &runtime)?;
                let (language, floor, ask) = (runtime.name(), runtime.floor(), &request.ask);
                let action = Action::Run { language, floor, ask };
                (Arc::clone(&runtime), self.judge(&policy::Call { caller, action })?, None, None)
            }
        };
        let request: &RunRequest = request;
        // Compile before admission: a compilation is admitted separately.
        let built = self.compile(wall, request, &runtime).instrument(debug_span!("compile")).await?;
        let permit = self.admit(terms.limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        let source = source.unwrap_or_else(|| request.source_in(&runtime).to_owned());
        let giving = Giving::of(&request.given, &runtime);
        let mut spec = match &built {
            None if request.terminal.is_some() => self.terminal_spec(wall, &runtime, &terms.limits).await,
            None => {
                let opening = opening(&runtime, &source, CpuShare::of(&terms.limits), giving)?;
                self.spec(&runtime, &terms.limits, opening)
            }
            Some(built) => SandboxSpec {
                limits: terms.limits.clone(),
                binds: runtime.run_binds(),
                layers: vec![Runtime::run_layer(&built.build)],
                files: runtime.run_files(&request.variables),
                links: runtime.links(),
                absence_allowed: self.policy().absence_allowed.clone(),
                ..SandboxSpec::default()
            },
        };
        spec.workspace = workspace;
        // A persistent workspace may see other interpreters later, and its wall is built for all interpreters.
        let is_anew =
            request.cold || built.is_some() || giving == Giving::AtStart || spec.workspace.is_some();
        let share = CpuShare::of(&terms.limits);
        // A zygote process has the share of a run that asks for none.
        if self.is_warm && !is_anew && share == self.usual_share() {
            spec.zygote = runtime.zygote(share, &request.code, |package| is_among(&request.inputs, package));
        }
        let lease = if is_anew {
            Lease::cold(wall.create(&spec).await?)
        } else {
            self.lease_for_run(wall, &spec, &runtime).await?
        };
        let reach = Reach::of(request, caller, &terms, &self.link_memory);
        Ok(Prepared { runtime, terms, permit, built, giving, spec, lease, source, started, reach })
    }

    async fn lease_for_run(
        &self,
        wall: &Wall,
        spec: &SandboxSpec,
        runtime: &Runtime,
    ) -> Result<Lease, Unstarted> {
        let policy = self.policy();
        // The limits of a run that asks for none.
        let usual = policy.usual(runtime.floor());
        let (language, purpose) = (runtime.interpreter(), Purpose::Run);
        wall.lease(&Want { spec, usual: &usual, most: &policy.maxima, language, purpose }).await
    }
}

/// A run that has its runtime, limits, admission permit and sandbox.
struct Prepared {
    runtime: std::sync::Arc<Runtime>,
    terms: Terms,
    permit: Permit,
    /// The compiled program, where the language is compiled. Holding it keeps the build cache from removing it.
    built: Option<Built>,
    giving: Giving,
    spec: SandboxSpec,
    lease: Lease,
    /// File name of the program in the workspace.
    source: String,
    started: Instant,
    /// What the program may reach outside; `None` if nothing was granted.
    reach: Option<std::sync::Arc<Reach>>,
}

impl Prepared {
    async fn run(
        mut self,
        wall: &Wall,
        mut request: RunRequest,
        audience: &mut Audience,
        mut stops: StopSignals,
    ) -> RunResult {
        let (backend, clamped) = (wall.name(), std::mem::take(&mut self.terms.clamped));
        let warnings = std::mem::take(&mut self.terms.notes);
        let mut begun = Begun { backend, clamped, warnings, execution: Execution::default() };
        let execution = &mut begun.execution;
        execution.compile = self.built.as_ref().map(|built| built.report);
        if let Some(report) = &execution.compile {
            execution.phases.parts_us.push(("compile", (report.ms * 1000.0) as u64));
        }
        execution.usage.queued_ms = millis(self.permit.queued);
        let created = Instant::now();
        let stdin = Feed::new(std::mem::take(&mut request.stdin));
        let opened = self.open_in_living(wall, &request, &stdin).await;
        execution.phases.parts_us.append(&mut self.lease.phases.parts_us);
        let mut conversation = match opened {
            Ok(conversation) => conversation,
            Err(error) => return self.fail(begun, &error).await,
        };
        conversation.feed(stdin);
        if let Some(asked) = request.terminal.take() {
            conversation.has_terminal(asked.resizes);
        }
        conversation.tell_to(audience);
        execution.usage.start_ms = millis(self.started.elapsed());
        execution.phases.parts_us.push(("guest", micros(created.elapsed())));
        let running = Instant::now();
        let end = self.follow_living(wall, &request, &mut conversation, &mut stops).await;
        conversation.cut_links().await;
        execution.enforced = self.lease.sandbox.enforced().clone();
        match end {
            End::Unlistened(errno) => return self.fail(begun, &GuestError::Unlistened { errno }).await,
            End::Unplaced(errno) => return self.fail(begun, &GuestError::Refused { errno }).await,
            End::NotStarted(errno) => return self.fail(begun, &GuestError::NotStarted { errno }).await,
            End::NotUnpacked => {
                let (_, said) = conversation.into_parts();
                return self.fail(begun, &said.not_unpacked()).await;
            }
            End::Compile(_) => conversation.tell_compile_failure(request.source_in(&self.runtime)),
            _ => {}
        }
        execution.usage.wall_ms = millis(running.elapsed());
        execution.phases.parts_us.push(("program", micros(running.elapsed())));
        if request.collect_files && matches!(end, End::Program(_)) && conversation.end_links().await {
            let collect = conversation.collect(&request.inputs, &self.source);
            match tokio::time::timeout(COLLECT_PATIENCE, collect).await {
                Ok(collected) => {
                    execution.artifacts = collected.0;
                    begun.warnings.extend(collected.1);
                }
                Err(_) => {
                    begun.warnings.push("the program's files could not be brought back in time".to_owned())
                }
            }
        }
        let ended = Instant::now();
        let sandbox = &mut self.lease.sandbox;
        // A stopped run may have much to release, and its caller can wait for the complete teardown.
        let ending = match sandbox.warmable() {
            Some(warmable) if matches!(end, End::Program(_)) => warmable.quiesce(),
            _ => sandbox.destroy(),
        };
        let usage = ending.await.unwrap_or_default();
        execution.phases.parts_us.push(("teardown", micros(ended.elapsed())));
        conversation.read_rest(end).await;
        let (_, said) = conversation.into_parts();
        let mut result = self.conclude(begun, said, end, usage);
        damage::advise(&mut result, self.runtime.name(), &request.code);
        self.destroy_in_background();
        result
    }

    /// Destroys the sandbox in the background. The run keeps its admission permit until the teardown is
    /// complete.
    fn destroy_in_background(self) {
        let Self { mut lease, permit, .. } = self;
        tokio::spawn(async move {
            // The backend reports a sandbox that it cannot destroy.
            lease.sandbox.destroy().await.ok();
            drop(permit);
        });
    }

    /// Opens the conversation. A spare may die in the moment in which it is leased. Nothing ran in it, so the
    /// engine builds a sandbox to replace it, once.
    async fn open_in_living<'a>(
        &mut self,
        wall: &Wall,
        request: &RunRequest,
        stdin: &Feed,
    ) -> Result<Conversation<'a>, GuestError> {
        let opened = self.open(request, stdin).await;
        match opened {
            Err(GuestError::Gone | GuestError::Io(_)) if self.lease.is_spare => {
                let Ok(sandbox) = wall.create(&self.spec).await else { return opened };
                self.lease = Lease::cold(sandbox);
                self.open(request, stdin).await
            }
            opened => opened,
        }
    }

    /// Follows the run, and replaces a spare whose death shows only after everything was sent: the spare is
    /// gone at once, and the program produced no message. If the program did begin, its effects were destroyed
    /// with the sandbox.
    async fn follow_living(
        &mut self,
        wall: &Wall,
        request: &RunRequest,
        conversation: &mut Conversation<'_>,
        stops: &mut StopSignals,
    ) -> End {
        let (started, again) = (Instant::now(), conversation.input().copy());
        let end = self.follow(conversation, stops).await;
        let is_dead_spare = self.lease.is_spare
            && matches!(end, End::Lost | End::Watch(Ending::Gone))
            && started.elapsed() < SPARE_DEATH_WINDOW
            && conversation.is_silent();
        let Some(stdin) = again.filter(|_| is_dead_spare) else { return end };
        let Ok(sandbox) = wall.create(&self.spec).await else { return end };
        self.lease = Lease::cold(sandbox);
        match self.open(request, &stdin).await {
            Ok(opened) => conversation.go_on_as(opened, stdin),
            Err(_) => return end,
        }
        self.follow(conversation, stops).await
    }

    async fn follow(&mut self, conversation: &mut Conversation<'_>, stops: &mut StopSignals) -> End {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(self.terms.limits.wall_ms);
        conversation.follow(self.lease.sandbox.as_mut(), stops, deadline).await.end()
    }

    /// Sends the files and the order together. The interpreter starts in the meantime.
    async fn open<'a>(&mut self, request: &RunRequest, stdin: &Feed) -> Result<Conversation<'a>, GuestError> {
        let guest = self.lease.connect().await?;
        let mut conversation =
            Conversation::once(guest, self.terms.limits.output_bytes, Overflow::EndsProgram);
        conversation.redact(request.given.redactor());
        conversation.grant(self.reach.as_ref())?;
        for input in &request.inputs {
            conversation.place(&input.path, &input.content).await?;
        }
        conversation.unpack(unpack::command(&request.inputs), &self.runtime)?;
        if self.built.is_some() {
            // A driver is already open at this point. A compiled program has no driver.
            let argv = self.runtime.run_command(&request.args, &request.given, &self.terms.limits);
            let env = self.runtime.environment_with(CpuShare::of(&self.terms.limits), &request.given);
            conversation.open(StartedProcess {
                process: MAIN,
                argv,
                env,
                has_channel: false,
                terminal: None,
            })?;
        } else if let Some(asked) = &request.terminal {
            let env = self.runtime.environment_with(CpuShare::of(&self.terms.limits), &Given::default());
            conversation.open(terminal::command(asked, &self.runtime, env, &request.given))?;
        } else {
            if self.giving == Giving::AtStart {
                self.start_with_given(&mut conversation, &request.given)?;
            }
            self.order(&mut conversation, request).await?;
        }
        if stdin.is_over() {
            conversation.end_input()?;
        }
        conversation.send().await?;
        Ok(conversation)
    }

    /// Starts the interpreter with what the run is given, and the preparer without it.
    fn start_with_given(&self, conversation: &mut Conversation<'_>, given: &Given) -> Result<(), GuestError> {
        let call = DriverCall { mode: FRESH, source: &in_workspace(&self.source) };
        let share = CpuShare::of(&self.terms.limits);
        let (argv, env) = (self.runtime.command(&call), self.runtime.environment_with(share, given));
        conversation.open(StartedProcess { process: MAIN, argv, env, has_channel: true, terminal: None })?;
        match self.runtime.preparing(&call) {
            None => Ok(()),
            Some(Preparing { command: argv, .. }) => {
                let (env, process) = (self.runtime.environment(share), PREPARE);
                conversation.open(StartedProcess { process, argv, env, has_channel: false, terminal: None })
            }
        }
    }

    /// Sends the program to its driver. Where the language needs a preparer, the preparer gets the program
    /// first.
    async fn order(
        &mut self,
        conversation: &mut Conversation<'_>,
        request: &RunRequest,
    ) -> Result<(), GuestError> {
        conversation.place(&self.source, request.code.as_bytes()).await?;
        let path = in_workspace(&self.source);
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        // The code is also in the file: some drivers read it from the file much faster than from the channel.
        let code = self.runtime.told(&request.code);
        let given = match self.giving {
            Giving::ByMessage => request.given.pairs(),
            Giving::AtStart => Vec::new(),
        };
        let (variables, args, given) = (&variables, &request.args, &given);
        let run = DriverRun { source: &path, code, variables, args, given };
        let order = driver::fresh_run(&run);
        match self.runtime.preparing(&DriverCall { mode: FRESH, source: &path }) {
            None => conversation.order(order),
            Some(preparing) => conversation.prepare(Preparation::new(preparing, order, None)),
        }
    }

    fn conclude(&self, mut begun: Begun, said: Said, end: End, usage: Usage) -> RunResult {
        let Verdict { outcome, error, warnings } = verdict::judge(end, &usage, &self.terms.limits);
        let Said { output, done, displays: shown } = said;
        let mut done = done.unwrap_or_default();
        let (outcome, error) = self.hear_last_words((outcome, error), &mut done, &output, usage);
        begun.warnings.extend(warnings);
        let runtime = &*self.runtime;
        Conclusion { runtime, end, outcome, error, said: done, shown, output, usage }.into_result(begun)
    }

    /// Searches standard error for the cause and position of a failure, for a program without a driver.
    fn hear_last_words(
        &self,
        (outcome, error): (Outcome, Option<RunError>),
        done: &mut Done,
        output: &Output,
        usage: Usage,
    ) -> (Outcome, Option<RunError>) {
        if outcome != Outcome::Failed {
            return (outcome, error);
        }
        let tail = &output.stderr[output.stderr.len().saturating_sub(LAST_WORDS_BYTES)..];
        let words = String::from_utf8_lossy(tail);
        let limits = &self.terms.limits;
        if self.runtime.ran_out_of_memory(&words, usage.memory_peak_bytes, limits.memory_bytes) {
            let verdict = verdict::judge(End::Watch(sandbox::Ending::Memory), &usage, limits);
            return (verdict.outcome, verdict.error);
        }
        if done.error_message.is_none()
            && let Some(said) = self.runtime.explain_failure(&words, &self.source)
        {
            let said = said.for_program(&self.source);
            (done.error_line, done.error_column) = (said.line, said.column);
            done.error_message = Some(said.message);
        }
        (outcome, error)
    }

    /// Reports a run whose files did not fit, or whose guest was lost before the program began.
    async fn fail(mut self, begun: Begun, error: &GuestError) -> RunResult {
        let usage = self.lease.sandbox.destroy().await.unwrap_or_default();
        let (outcome, told) = explain_guest(error, &usage);
        let Begun { backend, clamped, .. } = begun;
        RunResult { clamped, ..RunResult::not_started(outcome, backend, told) }
    }
}

pub(crate) fn in_workspace(name: &str) -> String {
    format!("{WORKSPACE}/{name}")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
