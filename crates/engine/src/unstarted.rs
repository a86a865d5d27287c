//! Runs that did not start: the errors that a caller gets when no code was executed. `run`, `compile`,
//! `validate` and `sandboxes` build them.

use sandbox::{BackendError, Outcome, Usage};

use crate::circuit::WallFailure;
use crate::conversation::{Stop, StopSignals};
use crate::guest_client::GuestError;
use crate::result::{Execution, RunError, RunPhase, RunResult};
use crate::runtimes::RuntimeError;
use crate::unpack;
use crate::verdict::{self, End, Verdict};

const NO_ROOM: &str = "give a larger limits.disk_mb, or send fewer or smaller inputs";

/// A run that did not start.
pub(crate) struct Unstarted {
    pub(crate) outcome: Outcome,
    pub(crate) error: RunError,
    /// The execution of the compiler, if the run got that far.
    pub(crate) compilation: Option<Box<Execution>>,
}

impl From<RunError> for Unstarted {
    fn from(error: RunError) -> Self {
        Self::new(Outcome::Refused, error)
    }
}

impl From<RuntimeError> for Unstarted {
    fn from(error: RuntimeError) -> Self {
        let mut told = RunError::new(error.code(), error.to_string()).remedy(error.remedy());
        told.retry_after_ms = error.retry_after_ms();
        told.retryable = told.retry_after_ms.is_some();
        let outcome = if told.retryable { Outcome::Unavailable } else { Outcome::Refused };
        Self::new(outcome, told)
    }
}

impl Unstarted {
    fn new(outcome: Outcome, error: RunError) -> Self {
        Self { outcome, error, compilation: None }
    }

    /// Converts it into the result for the caller.
    pub(crate) fn into_result(self, backend: &'static str) -> RunResult {
        let Self { outcome, error, compilation } = self;
        let phase = compilation.map_or(RunPhase::NotStarted, RunPhase::Finished);
        RunResult { phase, ..RunResult::not_started(outcome, backend, error) }
    }

    pub(crate) fn stopped(stop: Stop) -> Self {
        let limits = sandbox::Limits::default();
        let Verdict { outcome, error, .. } = verdict::judge(End::Stopped(stop), &Usage::default(), &limits);
        Self::new(outcome, error.unwrap_or_default())
    }

    pub(crate) fn busy(busy: crate::Busy) -> Self {
        if busy.retry_after_ms == 0 {
            // Waiting does not help. A sandbox can have limits that an earlier server granted.
            let remedy = "open a sandbox with less limits.memory_mb; get_capabilities has the maximum";
            return RunError::new("bad_limit", busy.reason).remedy(remedy).into();
        }
        let mut error = RunError::new("busy", busy.reason);
        error.retryable = true;
        error.retry_after_ms = Some(busy.retry_after_ms);
        Self::new(Outcome::Unavailable, error)
    }

    pub(crate) fn wall(error: &BackendError) -> Self {
        let WallFailure { what, cause, remedy, .. } = WallFailure::of(error);
        let mut told = RunError::new("wall_unavailable", what);
        told.cause = match error {
            BackendError::Suspended { cause, .. } => cause.clone(),
            _ => cause,
        };
        told.retry_after_ms = error.retry_after_ms();
        told.retryable = told.retry_after_ms.is_some();
        let for_caller = "try again later: the server goes on trying by itself; for its operator: ";
        let for_caller = if told.retryable { for_caller } else { "" };
        Self::new(Outcome::Unavailable, told.remedy(format!("{for_caller}{remedy}")))
    }

    pub(crate) fn unlistened(errno: i32) -> Self {
        Self::new(Outcome::Unavailable, unlistened(errno))
    }

    pub(crate) fn incomplete(missing: &[sandbox::Guarantee]) -> Self {
        let names: Vec<&str> = missing.iter().map(|guarantee| guarantee.name()).collect();
        let message = format!("this machine cannot enforce {}", names.join(", "));
        let remedy = "run `palisade doctor` on the server; an operator may accept the absence by name";
        RunError::new("guarantee_missing", message).remedy(remedy).into()
    }
}

/// The error of a run in a persistent sandbox whose program could not be placed.
pub(crate) fn unplaced(error: &GuestError) -> RunError {
    let mut told = RunError::new("sandbox_failed", "the program's files could not be placed in the sandbox")
        .remedy("try again");
    told.cause = Some(error.to_string());
    match error {
        GuestError::Refused { errno } => (told.code, told.remedy) = explain_refusal(*errno),
        GuestError::NotUnpacked { said } => told = not_unpacked(said),
        _ => {}
    }
    told
}

/// The error of a run whose sandbox could not listen for it.
fn unlistened(errno: i32) -> RunError {
    let message =
        "the sandbox could not open the socket through which the program reaches what it was granted";
    let remedy = "end the process in the sandbox that uses the port or the path, or run in a fresh sandbox";
    let mut told = RunError::new("listen_failed", message).remedy(remedy);
    told.cause = Some(std::io::Error::from_raw_os_error(errno).to_string());
    told
}

/// Completes with `work`, or at once when the run is stopped before. What was begun is then dropped.
pub(crate) async fn unless_stopped<T>(
    stops: &mut StopSignals,
    work: impl Future<Output = Result<T, Unstarted>>,
) -> Result<T, Unstarted> {
    tokio::select! {
        biased;
        why = stops.stopped() => Err(Unstarted::stopped(why)),
        done = work => done,
    }
}

/// What callers are told when the guest was lost, or refused something, before the program began.
pub(crate) fn explain_guest(error: &GuestError, usage: &Usage) -> (Outcome, RunError) {
    let message = "the program's files could not be placed in the sandbox";
    let mut told = RunError::new("sandbox_failed", message);
    told.cause = Some(error.to_string());
    let outcome = match error {
        GuestError::NotStarted { .. } => {
            told.code = "language_broken".to_owned();
            told.message = "the interpreter could not be started in the sandbox".to_owned();
            Outcome::Unavailable
        }
        GuestError::Refused { errno } => {
            (told.code, told.remedy) = explain_refusal(*errno);
            Outcome::Refused
        }
        GuestError::Unlistened { errno } => {
            told = unlistened(*errno);
            Outcome::Unavailable
        }
        _ if usage.oom_kills > 0 => Outcome::OutOfMemory,
        GuestError::NotUnpacked { said } => {
            told = not_unpacked(said);
            if usage.disk_full {
                told = RunError { code: "inputs_do_not_fit".to_owned(), ..told }.remedy(NO_ROOM);
            }
            Outcome::Refused
        }
        _ => Outcome::Unavailable,
    };
    (outcome, told)
}

/// The error of a run with an archive that could not be unpacked, with the report of the command.
fn not_unpacked(said: &str) -> RunError {
    if unpack::is_disk_full(said) {
        return RunError::new("inputs_do_not_fit", said).remedy(NO_ROOM);
    }
    let remedy = "check that the file is complete and is of the kind that its name says";
    RunError::new("unpack_failed", said).remedy(remedy)
}

/// Explains why a file could not be placed, from the errno of the kernel inside the sandbox.
fn explain_refusal(errno: i32) -> (String, Option<String>) {
    const EFBIG: i32 = 27;
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    let (code, remedy) = if [EFBIG, ENOSPC, EDQUOT].contains(&errno) {
        ("inputs_do_not_fit", NO_ROOM)
    } else {
        (
            "bad_inputs",
            "check the inputs' paths: one may be a directory of another, or longer than a name may be",
        )
    };
    (code.to_owned(), Some(remedy.to_owned()))
}
