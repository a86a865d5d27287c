//! A run in a persistent sandbox, from request to result. `runs` calls [`Sandboxes::run`].
//!
//! Languages with a live interpreter run inside the awake sandbox. Other languages run in a separate wall over
//! the same files, through `Engine::run_in`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use policy::{Action, Call, Caller, Floor, Terms};
use sandbox::{DiskHeld, Ending, Kernel, OWN_KERNEL, Outcome, Usage};
use tokio::sync::oneshot;
use tracing::Instrument;
use wire::Fork;

use super::address::{InterpreterName, SandboxAddress};
use super::awake::{AwakePackages, AwakeSandbox};
use super::contexts;
use super::entry::{SandboxEntry, Slot};
use super::idle_watch;
use super::live_run::{LiveRun, Unbegun};
use super::own_files::OwnFiles;
use super::packages::PackageRequest;
use super::{ContextName, Sandboxes};
use crate::admission::Permit;
use crate::clock;
use crate::conclusion::{Begun, Conclusion};
use crate::conversation::{Audience, InterpreterFate, KeptEnd, KeptInterpreter, Said, Stop, StopSignals};
use crate::damage;
use crate::feed::Feed;
use crate::guest_client::GuestError;
use crate::links::Reach;
use crate::packages::ShownPackages;
use crate::request::{RunRequest, Stdin, check_names};
use crate::result::{Execution, Lasting, RunError, RunResult, RunUsage};
use crate::run::{InSandbox, millis};
use crate::runtimes::Runtime;
use crate::store::SandboxUse;
use crate::unstarted::{Unstarted, unless_stopped, unplaced};
use crate::verdict::{self, End, Verdict};
use crate::wall::Wall;
use crate::workspace::{Changes, Pace, Snapshot, Workspace};

/// When a program fails with less than this fraction (one part in 50) of the disk free, the disk counts as
/// full.
const NEARLY: u64 = 50;
/// The host examines the disk only at intervals while a program runs, so a run may exceed the limit a little
/// before it is ended. If the files exceed the limit by this many bytes, or this many times, no run begins.
const FAR_BEYOND_BYTES: u64 = 1 << 30;
const FAR_BEYOND_TIMES: u64 = 4;
/// Why interpreter states are gone whose whole sandbox is.
const ENDED: &str = "the sandbox ended unexpectedly";

/// The connections between a run and its caller.
pub(crate) struct Ties {
    /// Receives the events of the run.
    pub(crate) audience: Audience,
    /// Delivers the request to end the run.
    pub(crate) stop: oneshot::Receiver<Stop>,
}

/// A run that holds its turn.
struct Visit<'a> {
    entry: &'a Arc<SandboxEntry>,
    slot: &'a mut Slot,
    runtime: &'a Runtime,
    /// The interpreter that the run uses.
    name: InterpreterName,
    caller: &'a Caller,
    wall: &'a Wall,
    files: &'a dyn Workspace,
    terms: Terms,
    /// The size of the files, if it is known.
    held: Option<DiskHeld>,
    /// The packages of the sandbox.
    shown: &'a ShownPackages,
}

impl Sandboxes {
    /// Runs one program in the sandbox that the request names, if the caller owns it.
    pub(crate) async fn run(&self, caller: &Caller, request: RunRequest, ties: Ties) -> RunResult {
        let span = tracing::info_span!(
            "sandbox_run",
            sandbox_id = request.sandbox.as_ref().map(|address| address.id.as_str())
        );
        let mut behind = self.engine.backend().name();
        let ran = self.run_or_not(caller, request, ties, &mut behind).instrument(span).await;
        ran.unwrap_or_else(|unstarted| unstarted.into_result(behind))
    }

    async fn run_or_not(
        &self,
        caller: &Caller,
        mut request: RunRequest,
        Ties { mut audience, stop }: Ties,
        behind: &mut &'static str,
    ) -> Result<RunResult, Unstarted> {
        request.check()?;
        let address = request.sandbox.clone().ok_or_else(super::unknown_sandbox)?;
        let (context, SandboxAddress { id, .. }) = (address.context_of_run(), address);
        let entry = self.entry(&caller.principal, &id).await?.ok_or_else(super::unknown_sandbox)?;
        let wall = self.wall_of(&entry)?;
        *behind = wall.name();
        check_wall(&request, behind)?;
        self.engine.keep_wall(behind, &request.wall_lists)?;
        let runtime = wall.runtimes().find(&request.language).await?;
        entry.record.check_access(&request.access)?;
        let outside = self.engine.open_access(caller, &mut request)?;
        request.given.check()?;
        request.given.show_tools_command(&runtime);
        check_names(&request, &runtime)?;
        // The live interpreters of a sandbox were given what they need when it was opened.
        let floor = if runtime.is_live() { Floor::default() } else { runtime.floor() };
        let (language, ask, of_sandbox) = (runtime.name(), &request.ask, &entry.record.limits);
        let action = Action::RunInSandbox { language, floor, ask, of_sandbox };
        let terms = self.engine.judge(&Call { caller, action })?;
        self.engine.check_packages(caller, &request.packages)?;
        let mut stops = StopSignals::new(stop).or_closing(entry.closing.subscribe(), Some(context.clone()));
        let packages = PackageRequest::of(&mut request, caller, wall);
        // Before the turn: an installation may take long, and other runs need not wait for it.
        unless_stopped(&mut stops, self.install_ahead(&entry, &packages)).await?;
        let mut slot = entry.take_turn(self.workspaces_of(wall)?, &mut stops).await?;
        let (shown, changes) =
            unless_stopped(&mut stops, self.show_packages(&entry, &mut slot, &packages)).await?;
        let files = self.files(&entry, entry.quota()).await?;
        files.open_up().await;
        let pace = entry.pace();
        let before = files.snapshot(pace).await.map_err(RunError::from)?;
        check_disk(&entry, before.used().bytes, &request)?;
        self.check_disk_quota(caller, &entry, before.used().bytes).await?;
        let known_before = slot.interpreters.len();
        let own_files = OwnFiles::of(&runtime, &request.code, &*files).await;
        let mut ran = if runtime.is_live() && request.terminal.is_none() {
            let used = before.used();
            // If the count is incomplete, the disk watch examines the files again.
            let held = DiskHeld { bytes: used.bytes, inodes: used.inodes };
            let held = used.is_complete.then_some(held);
            let (slot, files) = (&mut *slot, &*files);
            let name =
                InterpreterName { context: context.clone(), interpreter: runtime.interpreter().to_owned() };
            let (entry, runtime, shown) = (&entry, &runtime, &shown);
            let visit = Visit { caller, wall, entry, slot, runtime, name, files, terms, held, shown };
            let live = self.run_live(visit, request, (&mut audience, stops));
            live.instrument(tracing::debug_span!("live_run")).await
        } else {
            let (runtime, workspace) = (Arc::clone(&runtime), entry.workspace.clone());
            let source = own_files.program();
            let shown = shown.clone();
            let sandbox = InSandbox { wall: wall.name(), workspace, runtime, terms, source, shown };
            Ok(self.engine.run_in((caller, Some(sandbox)), request, &mut audience, stops).await)
        };
        own_files.remove(&*files).await;
        if let Ok(result) = &mut ran {
            look_at_files((&entry, context), before, pace, result).await;
            suit_remedy(result);
            shown.settle(result);
            result.warnings.extend(changes);
            outside.into_iter().for_each(|outside| outside.settle(result));
        }
        entry.note_use(&slot);
        if slot.awake.is_some() {
            idle_watch::watch_over(self, &entry);
        }
        let is_known = slot.interpreters.len() == known_before;
        self.record_use(&entry, slot.names(), is_known).await;
        ran
    }

    /// Tells the store of a run. `is_known` means that it knows the interpreters.
    async fn record_use(&self, entry: &SandboxEntry, languages: Vec<String>, is_known: bool) {
        let used = SandboxUse {
            id: entry.record.id.clone(),
            used_ms: clock::unix_ms(),
            languages,
            disk_bytes: entry.disk_bytes.load(Ordering::Relaxed),
        };
        if is_known {
            // If this write is lost, only the time of the last use is lost.
            self.store.use_sandbox(used).await.unwrap_or_else(|error| self.store.tell(&error));
        } else {
            // A caller who was told of an interpreter state must learn when it is gone, even from the next
            // server.
            self.store.use_sandbox_now(used).await.unwrap_or_else(|error| self.store.tell(&error));
        }
    }

    async fn run_live(
        &self,
        visit: Visit<'_>,
        mut request: RunRequest,
        (audience, mut stops): (&mut Audience, StopSignals),
    ) -> Result<RunResult, Unstarted> {
        let Visit { caller, wall, entry, slot, runtime, name, files, terms, held, shown } = visit;
        contexts::check_room(slot, &name)?;
        let workspace = (&entry.workspace, files);
        let engine = &self.engine;
        if slot.awake.is_none() {
            self.make_room_awake();
        }
        let admitted = async { engine.admit(terms.limits.memory_bytes).await.map_err(Unstarted::busy) };
        let permit = unless_stopped(&mut stops, admitted).await?;
        // Input that is known is placed as a file; other input arrives during the run.
        let mut feed = match &mut request.stdin {
            stdin @ (Stdin::Stream(_) | Stdin::Prompted(_)) => Feed::new(std::mem::take(stdin)),
            Stdin::Empty | Stdin::Bytes(_) => Feed::Over,
        };
        let is_streamed = !feed.is_over();
        let wake = || {
            let first = (request.code.as_str(), shown);
            AwakeSandbox::wake((engine, wall), workspace, &entry.record.limits, first)
        };
        let started = tokio::time::Instant::now();
        // From here on, a sandbox that is not put back is destroyed on every path.
        let awake = match slot.awake.take() {
            Some(awake) => awake,
            None => unless_stopped(&mut stops, wake()).await?,
        };
        let (backend, clamped) = (wall.name(), terms.clamped.clone());
        let repair = engine.repair(caller, runtime, request.sandbox.as_ref());
        let (warnings, execution) = (terms.notes.clone(), Execution::default());
        let mut begun = Begun { backend, clamped, warnings, execution, repair };
        begun.execution.enforced = awake.sandbox.enforced().clone();
        let reach = Reach::of(&request, caller, &terms, &engine.link_memory);
        let living: Vec<InterpreterName> = awake.channel.interpreters().cloned().collect();
        // The zygote process was chosen for the first program of a sandbox and the files of that moment.
        let is_suited = living.is_empty() || living.contains(&name);
        let fork = fork_of(runtime, files, &awake.packages, is_suited).await;
        let interpreter = KeptInterpreter { name: &name, runtime, fork };
        let live_run =
            LiveRun { request: &request, interpreter, limits: &terms.limits, held, reach, is_streamed };
        let mut played = live_run.play(awake, &mut feed, audience, &mut stops).await;
        // A sandbox that is gone or does not answer is replaced once: nothing of this run had begun there.
        if played.as_ref().map_or(true, |(_, end, _)| end.is_unbegun()) {
            slot.lost(&living, ENDED);
            let awake = unless_stopped(&mut stops, wake()).await?;
            played = live_run.play(awake, &mut feed, audience, &mut stops).await;
        }
        let (awake, played, began) = played.map_err(Unstarted::from)?;
        begun.execution.usage = RunUsage {
            queued_ms: millis(permit.queued),
            start_ms: millis(began.duration_since(started)),
            wall_ms: millis(began.elapsed()),
            ..RunUsage::default()
        };
        note_interpreters(slot, &mut begun, (&name, &played), (&awake, &living));
        let refused = match played.end {
            End::Unplaced(errno) => Some(unplaced(&GuestError::Refused { errno }).into()),
            End::NotUnpacked => Some(unplaced(&played.said.not_unpacked()).into()),
            End::Unlistened(errno) => Some(Unstarted::unlistened(errno)),
            _ => None,
        };
        if let Some(refused) = refused {
            // What could not be placed is no reason to lose the interpreter state.
            slot.awake = Some(awake).filter(|_| played.interpreter != InterpreterFate::Gone);
            return Err(refused);
        }
        let concluding = Concluding { runtime, begun, played, awake, slot, name, terms, permit };
        let mut result = conclude(concluding).await;
        damage::advise(&mut result, runtime.name(), &request.code);
        Ok(result)
    }
}

impl From<Unbegun> for Unstarted {
    fn from(why: Unbegun) -> Self {
        match why {
            Unbegun::Guest(error) => unplaced(&error).into(),
            Unbegun::Host(error) => error.into(),
        }
    }
}

/// Whether an interpreter may be a copy of the zygote process. A copy has packages loaded, so it would not find
/// modules of the same names that came into the workspace later.
async fn fork_of(
    runtime: &Runtime,
    files: &dyn Workspace,
    packages: &AwakePackages,
    is_suited: bool,
) -> Fork {
    let may_fork = runtime.has_zygote()
        && !packages.covers_loaded(runtime)
        && (is_suited || !files.holds_any(&runtime.names_of_loaded()).await);
    if may_fork { Fork::Again } else { Fork::Never }
}

/// Records which interpreters the run started and which ended meanwhile, and warns of states that are gone.
fn note_interpreters(
    slot: &mut Slot,
    begun: &mut Begun,
    (name, played): (&InterpreterName, &KeptEnd),
    (awake, living): (&AwakeSandbox, &[InterpreterName]),
) {
    if played.was_deaf {
        slot.lost([name], "a program had stopped the one before and it did not go on");
    }
    if played.is_fresh
        && let Some(why) = slot.started(name)
    {
        begun.warnings.push(format!(
            "the interpreter is a fresh one: {why}, so earlier variables are gone; files are kept"
        ));
    }
    if played.interpreter == InterpreterFate::Gone {
        return;
    }
    // The kernel may have ended another interpreter when memory was short, or a program did.
    let is_gone =
        |other: &&InterpreterName| *other != name && awake.channel.interpreters().all(|it| it != *other);
    for other in living.iter().filter(is_gone) {
        begun.warnings.push(format!(
            "the interpreter {other} of this sandbox has ended, so its variables are gone; files are kept"
        ));
    }
}

/// A sandbox stays behind its wall.
fn check_wall(request: &RunRequest, behind: &str) -> Result<(), RunError> {
    let fits =
        |wanted: &str| wanted == behind || (wanted == OWN_KERNEL && Kernel::of_wall(behind) == Kernel::Own);
    if request.wall.as_deref().is_none_or(fits) {
        return Ok(());
    }
    let message = format!("the sandbox is behind the wall `{behind}`");
    let remedy = "leave the wall out, or open a sandbox behind the other wall";
    Err(RunError::new("wall_mismatch", message).remedy(remedy))
}

/// The size beyond a limit at which no run begins.
fn far_beyond(most: u64) -> u64 {
    most.saturating_mul(FAR_BEYOND_TIMES).min(most.saturating_add(FAR_BEYOND_BYTES))
}

/// Refuses inputs that would exceed the disk limit. A run may still clean up a workspace that is slightly over
/// the limit.
fn check_disk(entry: &SandboxEntry, used: u64, request: &RunRequest) -> Result<(), Unstarted> {
    let placed = request.inputs.iter().map(|input| input.content.len() as u64).sum::<u64>();
    let most = entry.record.limits.disk_bytes;
    let far = far_beyond(most);
    entry.disk_bytes.store(used, Ordering::Relaxed);
    let is_fine = if placed == 0 { used <= far } else { used.saturating_add(placed) <= most };
    if is_fine {
        return Ok(());
    }
    let (message, remedy) = if used > far {
        (
            "the files of the sandbox hold far more than they may, and nothing runs there any more",
            "fetch what is needed with read_file, then close the sandbox",
        )
    } else {
        (
            "the files of the sandbox leave no room for the inputs",
            "remove files by a run without inputs, or open a sandbox with a larger limits.disk_mb",
        )
    };
    Err(RunError::new("disk_full", message).remedy(remedy).into())
}

/// Reports which files a run changed, and whether it failed because they fill the disk.
async fn look_at_files(
    (entry, context): (&SandboxEntry, ContextName),
    before: Box<dyn Snapshot>,
    pace: Pace,
    result: &mut RunResult,
) {
    let started = Instant::now();
    let looked = before.changes(pace).await;
    let used = looked.as_ref().ok().map(|changes| changes.used);
    entry.note_size(used, started.elapsed());
    let changes = looked.unwrap_or_else(|error| Changes {
        notes: vec![format!("what became of the files is not known: {}", error)],
        ..Changes::default()
    });
    result.warnings.extend(changes.notes);
    let context = Some(context).filter(|context| !context.is_default());
    result.lasting = Some(Lasting { sandbox: entry.record.id.clone(), context, files: changes.files });
    let Some(used) = used else { return };
    let has_grown = used.bytes > entry.disk_bytes.swap(used.bytes, Ordering::Relaxed);
    let limits = &entry.record.limits;
    let is_full = used.bytes.saturating_add(limits.disk_bytes / NEARLY) >= limits.disk_bytes
        || used.inodes.saturating_add(limits.disk_inodes / NEARLY) >= limits.disk_inodes;
    if is_full && has_grown && result.outcome == Outcome::Failed {
        let verdict = verdict::judge(End::Watch(Ending::Disk), &Usage::default(), limits);
        (result.outcome, result.error) = (verdict.outcome, verdict.error);
    } else if used.bytes > limits.disk_bytes {
        let what =
            format!("the files hold more than the {} MB that they may: remove some", limits.disk_bytes >> 20);
        result.warnings.push(what);
    }
}

/// Adapts the remedy: a run cannot raise the limits of its sandbox, so a remedy that suggests it would mislead.
fn suit_remedy(result: &mut RunResult) {
    let remedy = match result.outcome {
        Outcome::OutOfMemory => "process the data in parts, or open a sandbox with a larger limits.memory_mb",
        Outcome::DiskFull => "remove files no longer needed, or open a sandbox with a larger limits.disk_mb",
        Outcome::ProcessLimit => "use fewer workers, or open a sandbox with a larger limits.processes",
        _ => return,
    };
    if let Some(error) = &mut result.error {
        error.remedy = Some(remedy.to_owned());
    }
}

/// The inputs of [`conclude`].
struct Concluding<'a> {
    runtime: &'a Runtime,
    begun: Begun,
    played: KeptEnd,
    awake: AwakeSandbox,
    slot: &'a mut Slot,
    name: InterpreterName,
    terms: Terms,
    permit: Permit,
}

/// Decides the outcome, and puts the sandbox back if it is still usable.
async fn conclude(concluding: Concluding<'_>) -> RunResult {
    let Concluding { runtime, mut begun, played, mut awake, slot, name, terms, permit } = concluding;
    let KeptEnd { end, said: Said { output, done, displays: shown }, interpreter, .. } = played;
    let usage = awake.sandbox.usage().await;
    awake.channel.reader.settle();
    awake.charged_cpu_us = usage.cpu_us;
    if !matches!(end, End::Program(_)) && interpreter != InterpreterFate::Gone {
        // The run used up what it may. Processes of other interpreters are not ended for that between runs.
        awake.sandbox.measure_anew(&terms.limits, None).await;
        awake.charged_cpu_us = 0;
    }
    let lost = match interpreter {
        InterpreterFate::Kept => None,
        InterpreterFate::Ended => Some("it ended with the program"),
        InterpreterFate::Killed => Some("it did not stop when it was asked to and was killed"),
        InterpreterFate::Gone => {
            slot.lost(awake.channel.interpreters(), ENDED);
            Some(ENDED)
        }
    };
    slot.awake = Some(awake).filter(|_| interpreter != InterpreterFate::Gone);
    drop(permit);
    let Verdict { outcome, error, warnings } = verdict::judge(end, &usage, &terms.limits);
    begun.warnings.extend(warnings);
    if let Some(lost) = lost {
        slot.lost([&name], lost);
        let what = format!("the next run begins with a fresh interpreter: {lost}; files are kept");
        begun.warnings.push(what);
    }
    let said = done.unwrap_or_default();
    Conclusion { runtime, end, outcome, error, said, shown, output, usage }.into_result(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_limits_are_passed_by_times_and_large_ones_by_bytes() {
        assert_eq!(far_beyond(16 << 20), 64 << 20);
        assert_eq!(far_beyond(4 << 30), 5 << 30);
        assert_eq!(far_beyond(u64::MAX), u64::MAX);
    }
}
