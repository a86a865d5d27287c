//! A run in a sandbox that lasts, from request to result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use policy::{Allowed, Decision};
use sandbox::{Limits, Outcome};
use tokio::sync::{mpsc, oneshot};
use wire::{Exit, FromGuest};

use super::living::Living;
use super::room::{Room, Slot};
use super::turn::{Afterwards, Ears, Played, Turn};
use super::{SandboxId, Sandboxes};
use crate::admission::Permit;
use crate::principal::Principal;
use crate::request::RunRequest;
use crate::result::{RunError, RunResult, RunUsage, Value};
use crate::run::{OWN_FILES, RunEvent, Stop, check_names, millis};
use crate::runtimes::Runtime;
use crate::store::SandboxUse;
use crate::unstarted::Unstarted;
use crate::verdict::{self, End, Verdict};
use crate::{clock, run};

impl Sandboxes {
    /// Runs one program in a sandbox of that principal.
    pub(crate) async fn run(
        &self,
        principal: &Principal,
        id: &SandboxId,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        stop: oneshot::Receiver<Stop>,
    ) -> RunResult {
        let ran = self.run_or_not(principal, id, request, events, stop).await;
        ran.unwrap_or_else(|unstarted| unstarted.into_result(self.engine.backend().name()))
    }

    async fn run_or_not(
        &self,
        principal: &Principal,
        id: &SandboxId,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        mut stop: oneshot::Receiver<Stop>,
    ) -> Result<RunResult, Unstarted> {
        request.check()?;
        let room = self.room(principal, id).await?.ok_or_else(unknown_sandbox)?;
        let runtime = self.engine.runtimes().find(&request.language).await?;
        check_names(&request, &runtime)?;
        let mut slot = room.turn(&mut stop).await?;
        let own_files = [runtime.source(), "stdin"].map(|name| format!("{OWN_FILES}{name}"));
        let ran = if runtime.is_live() {
            self.run_live(&room, &mut slot, &runtime, request, events, stop).await
        } else {
            let mut request = request;
            let fixed = fix_limits(&mut request, &room.record.limits);
            let mut result = self.engine.run_in(Some(room.workspace()), request, events, stop).await;
            result.warnings.extend(fixed);
            Ok(result)
        };
        room.tidy(&own_files);
        room.note_use(&slot);
        let used = SandboxUse {
            id: id.clone(),
            used_ms: clock::unix_ms(),
            languages: slot.languages.iter().cloned().collect(),
            disk_bytes: room.disk_bytes.load(Ordering::Relaxed),
        };
        // What is not noted is only how long it was unused.
        self.store.use_sandbox(used).await.ok();
        ran
    }

    async fn run_live(
        &self,
        room: &Arc<Room>,
        slot: &mut Slot,
        runtime: &Arc<Runtime>,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        stop: oneshot::Receiver<Stop>,
    ) -> Result<RunResult, Unstarted> {
        let (allowed, fixed) = self.allow(&request, &room.record.limits)?;
        let engine = &self.engine;
        let permit = engine.admission.admit(allowed.limits.memory_bytes).await.map_err(Unstarted::busy)?;
        let started = Instant::now();
        // Whatever happens from here on, a sandbox that is not put back is destroyed.
        let mut living = match slot.living.take() {
            Some(living) => living,
            None => Living::wake(engine, room.workspace(), &room.record.limits).await?,
        };
        let mut result = RunResult::unstarted(Outcome::Killed, engine.backend().name(), RunError::default());
        result.enforced = living.sandbox.enforced().clone();
        result.warnings = fixed;
        result.clamped = allowed.clamped.clone();
        result.usage.queued_ms = millis(permit.queued);
        // An interpreter that died since is noticed before it is given work; what it wrote belongs to nobody else.
        let mut before = Vec::new();
        let known = living.inside.interpreters.get(runtime.interpreter()).copied().unwrap_or(0);
        let keep_output = |message| {
            if let FromGuest::Output { stream, data, .. } = message {
                before.push((stream, data));
            }
        };
        let caught_up = living.inside.catch_up(known, keep_output).await.is_ok();
        if !caught_up {
            living = Living::wake(engine, room.workspace(), &room.record.limits).await?;
            slot.lost = "the sandbox ended unexpectedly";
        }
        let (process, is_new) = living.inside.interpreter(runtime).await.map_err(|_| lost())?;
        if is_new && !slot.languages.insert(runtime.interpreter().to_owned()) {
            result.warnings.push(format!(
                "the interpreter is a fresh one: {}, so earlier variables are gone; files are kept",
                slot.lost
            ));
        }
        living.sandbox.measure_anew(&allowed.limits);
        let mut turn = Turn::new(&mut living.inside, runtime, &allowed.limits, process, events);
        turn.take_output(before);
        turn.begin(&request).await.map_err(|error| run::unplaced(&error))?;
        result.usage.start_ms = millis(started.elapsed());
        let running = Instant::now();
        let ears = Ears { stop, closing: room.closing.subscribe() };
        let played = turn.play(living.sandbox.as_mut(), ears).await;
        result.usage.wall_ms = millis(running.elapsed());
        Ok(conclude(Concluding { result, played, living, slot, allowed, permit }))
    }

    /// A run's own limits: time and output; the others are the sandbox's.
    fn allow(&self, request: &RunRequest, of_sandbox: &Limits) -> Result<(Allowed, Vec<String>), Unstarted> {
        let mut ask = request.ask.clone();
        let fixed = keep_own_limits(&mut ask);
        match policy::decide(self.engine.policy(), policy::Floor::default(), &ask) {
            Decision::Allow(mut allowed) => {
                let Limits { wall_ms, output_bytes, .. } = allowed.limits;
                allowed.limits = Limits { wall_ms, output_bytes, ..of_sandbox.clone() };
                Ok((allowed, fixed))
            }
            Decision::Deny(denial) => {
                Err(RunError::new(denial.code, denial.reason).remedy(denial.remedy).into())
            }
        }
    }
}

/// What the end of a run is made of.
struct Concluding<'a> {
    result: RunResult,
    played: Played,
    living: Living,
    slot: &'a mut Slot,
    allowed: Allowed,
    permit: Permit,
}

/// Judges, and puts the sandbox back if it can go on.
fn conclude(concluding: Concluding<'_>) -> RunResult {
    let Concluding { mut result, played, mut living, slot, allowed, permit } = concluding;
    let Played { end, output, done, refused, interpreter } = played;
    let usage = living.sandbox.usage();
    match interpreter {
        Afterwards::Gone => slot.lost = "the sandbox ended unexpectedly",
        Afterwards::Killed => {
            slot.lost = "it did not stop when it was asked to and was killed";
            slot.living = Some(living);
        }
        Afterwards::Ended => {
            slot.lost = "it ended with the program";
            slot.living = Some(living);
        }
        Afterwards::Kept => slot.living = Some(living),
    }
    drop(permit);
    let Verdict { outcome, error, warnings } = verdict::judge(end, &usage, &allowed.limits);
    result.outcome = outcome;
    result.exit = match end {
        End::Program(exit) => Some(exit),
        End::Compile(_) => Some(Exit::Code(1)),
        _ => None,
    };
    (result.stdout, result.stderr) = (output.stdout, output.stderr);
    result.warnings.extend(warnings);
    if interpreter != Afterwards::Kept {
        let what = format!("the next run begins with a fresh interpreter: {}; files are kept", slot.lost);
        result.warnings.push(what);
    }
    let said = if matches!(end, End::Compile(_)) { refused } else { done };
    let said = said.unwrap_or_default();
    result.error = error.map(|error| match said.error_message {
        Some(message) if matches!(outcome, Outcome::Failed | Outcome::CompileFailed) => RunError {
            message,
            line: said.error_line,
            column: said.error_column,
            cause: Some(error.message),
            ..error
        },
        _ => error,
    });
    result.value = said.value_repr.map(|repr| Value {
        repr,
        json: said.value_json.and_then(|text| serde_json::from_str(&text).ok()),
        mime: said.value_mime,
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

/// Leaves in a wish what a run can have of its own; tells what was left out.
fn keep_own_limits(ask: &mut policy::Ask) -> Vec<String> {
    let own = policy::Ask { timeout_ms: ask.timeout_ms, output_kb: ask.output_kb, ..policy::Ask::default() };
    let others = policy::Ask { timeout_ms: None, output_kb: None, ..std::mem::take(ask) };
    *ask = own;
    if others == policy::Ask::default() {
        return Vec::new();
    }
    vec![
        "memory, processes, cpus, files and disk are limited for the whole sandbox, when it is opened"
            .to_owned(),
    ]
}

/// The same for a run in a wall of its own: it gets what the sandbox has.
fn fix_limits(request: &mut RunRequest, of_sandbox: &Limits) -> Vec<String> {
    let fixed = keep_own_limits(&mut request.ask);
    request.ask.memory_mb = Some(of_sandbox.memory_bytes >> 20);
    request.ask.cpus = Some(f64::from(of_sandbox.cpus_milli) / 1000.0);
    request.ask.processes = Some(u64::from(of_sandbox.processes));
    request.ask.disk_mb = Some(of_sandbox.disk_bytes >> 20);
    request.ask.open_files = Some(u64::from(of_sandbox.open_files));
    fixed
}

fn unknown_sandbox() -> Unstarted {
    RunError::new("unknown_sandbox", "there is no sandbox with this sandbox_id")
        .remedy("open one with sandbox_open; sandboxes that are not used for long are closed")
        .into()
}

fn lost() -> Unstarted {
    RunError::new("sandbox_failed", "the interpreter could not be started in the sandbox")
        .remedy("try again")
        .into()
}
