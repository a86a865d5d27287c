//! One run in a fresh sandbox, from request to result. [`Engine::run`] is the entry point.
//!
//! ```text
//! check -> runtime -> judge -> (compile) -> admit -> lease or create -> all guarantees? -> place files -> order
//!                                                                                                           |
//!     result <- judge <- quiesce, or destroy after a limit <- (program ended | clock | output | watch | stop)
//! ```
//! [`Conversation`], in mode once, handles all messages to and from the guest. The sandbox lives exactly as
//! long as [`Prepared`]; leaving this module by any path destroys it.

mod opening;

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::{Action, Caller, Terms, WallDemand};
use sandbox::{Ending, Outcome, SandboxSpec, Usage, WORKSPACE, WorkspaceRef};
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument, debug_span};

use crate::admission::Permit;
use crate::compile::{Built, CompileContext};
use crate::conclusion::{Begun, Conclusion};
use crate::conversation::{Audience, Conversation, RunEvent, Said, Stop, StopSignals};
use crate::driver::Done;
use crate::feed::Feed;
use crate::given::Giving;
use crate::guest_client::GuestError;
use crate::links::Reach;
use crate::missing::Repair;
use crate::output::Output;
use crate::packages::{PackageUse, ShownPackages};
use crate::pool::Lease;
use crate::request::{RunRequest, check_names};
use crate::result::{Execution, RunError, RunResult};
use crate::run_spec::RunPlan;
use crate::runtimes::Runtime;
use crate::unstarted::{Unstarted, explain_guest, unless_stopped};
use crate::verdict::{self, End, Verdict};
use crate::{Engine, Wall, damage};

/// The driver mode for an interpreter that executes a single run.
pub(crate) const FRESH: &str = "last";
/// Name prefix of the helper files that the engine places in a persistent workspace. They are not artifacts.
/// They are removed before the program begins, at the latest after the run.
pub(crate) const OWN_FILES: &str = ".palisade-";
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
    /// The packages of the sandbox.
    pub(crate) shown: ShownPackages,
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
        let chosen = match &sandbox {
            Some(sandbox) => self.keep_wall(sandbox.wall, &request.wall_lists),
            None => {
                let lists = std::mem::take(&mut request.wall_lists);
                self.choose_wall(&WallDemand { wanted: request.wall.take(), lists })
            }
        };
        let wall = match chosen {
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
        let (runtime, terms, workspace, source, shown) = match sandbox {
            Some(InSandbox { runtime, terms, workspace, source, shown, .. }) => {
                (runtime, terms, Some(workspace), source, shown)
            }
            None => {
                request.check()?;
                let runtime = wall.runtimes().find(&request.language).await?;
                check_names(request, &runtime)?;
                let (language, floor, ask) = (runtime.name(), runtime.floor(), &request.ask);
                let action = Action::Run { language, floor, ask };
                let terms = self.judge(&policy::Call { caller, action })?;
                // Before admission: an installation is not the program's time, and holds no place.
                let progress = request.install_progress.take();
                let of = PackageUse { caller, wall: wall.name(), progress };
                let shown = self.prepare_packages(&of, &request.packages, &[]).await?;
                (Arc::clone(&runtime), terms, None, None, shown)
            }
        };
        request.given.show_tools_command(&runtime);
        let request: &RunRequest = request;
        // Compile before admission: a compilation is admitted separately.
        let repair = self.repair(caller, &runtime, request.sandbox.as_ref());
        let of = CompileContext { wall, runtime: &runtime, shown: &shown, repair: &repair };
        let built = self.compile(&of, request).instrument(debug_span!("compile")).await?;
        let permit = self.admit(terms.limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        let source = source.unwrap_or_else(|| request.source_in(&runtime).to_owned());
        let giving = Giving::of(&request.given, &runtime);
        // A persistent workspace may see other interpreters later, and its wall is built for all interpreters.
        let is_anew = request.cold || built.is_some() || giving == Giving::AtStart || workspace.is_some();
        let modules = if is_anew { Vec::new() } else { self.modules_ahead(&shown, &runtime, request) };
        let (runtime_of, limits, built_of) = (&*runtime, &terms.limits, built.as_ref());
        let plan = RunPlan {
            runtime: runtime_of,
            limits,
            built: built_of,
            source: &source,
            giving,
            shown: &shown,
            modules: &modules,
        };
        let mut spec = self.run_spec(wall, request, &plan).await?;
        spec.workspace = workspace;
        if !is_anew {
            spec.zygote = self.zygote_for(request, &plan);
        }
        let lease = if is_anew {
            Lease::cold(wall.create(&spec).await?)
        } else {
            self.lease_for_run(wall, &spec, &runtime).await?
        };
        let reach = Reach::of(request, caller, &terms, &self.link_memory);
        Ok(Prepared {
            runtime,
            terms,
            permit,
            built,
            giving,
            spec,
            lease,
            source,
            started,
            reach,
            shown,
            repair,
        })
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
    /// How a package that is missing can be installed.
    repair: Repair,
    /// The packages that it finds.
    shown: ShownPackages,
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
        let repair = std::mem::take(&mut self.repair);
        let mut begun = Begun { backend, clamped, warnings, execution: Execution::default(), repair };
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
            let (artifacts, warnings) = conversation.collect(&request.inputs, &self.source).await;
            begun.execution.artifacts = artifacts;
            begun.warnings.extend(warnings);
        }
        let ended = Instant::now();
        let sandbox = &mut self.lease.sandbox;
        // A stopped run may have much to release, and its caller can wait for the complete teardown.
        let ending = match sandbox.warmable() {
            Some(warmable) if matches!(end, End::Program(_)) => warmable.quiesce(),
            _ => sandbox.destroy(),
        };
        let usage = ending.await.unwrap_or_default();
        begun.execution.phases.parts_us.push(("teardown", micros(ended.elapsed())));
        conversation.read_rest(end).await;
        let (_, said) = conversation.into_parts();
        let mut result = self.conclude(begun, said, end, usage);
        self.shown.settle(&mut result);
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
