//! A circuit breaker: stops building sandboxes while the backend cannot build any, and detects recovery by
//! itself.
//!
//! ```text
//! closed -- FAILURES_MAX builds in a row failed --> doubted -- a probe works --> closed
//!                                                      | it fails
//!                                                      v
//!                                                    open -- a later probe works --> closed
//! ```
//! It stands between the engine and any backend:
//!
//! - Closed: every build is tried.
//! - Doubted: builds wait for the probe. The probe builds the plainest sandbox, so that one language whose
//!   sandbox cannot be built does not stop the others.
//! - Open: builds are refused at once with the cause. One probe at a time, with growing pauses, tests for
//!   recovery.
//!
//! [`BackendError::Unavailable`] counts like a failed build. A wall that is only full recovers with the probe. A
//! wall whose service is down is not asked by every caller, and `/readyz` reports it. The next probe follows
//! when the wall expects to be back, so that a restart of its service does not meet the growing pauses.

use std::io::ErrorKind;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sandbox::workspace::WorkspaceStore;
use sandbox::{Backend, BackendError, BoxFuture, Enforced, FailureCounts, Inventory, Sandbox, SandboxSpec};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument;

/// How many builds in a row must fail before the backend itself is doubted.
const FAILURES_MAX: u32 = 3;
/// The pause between the first two probes. It doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The shortest retry delay that a caller is given.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// Why no sandbox can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WallFailure {
    /// What failed. A build names its step.
    pub what: String,
    /// The operating system's reason, if there is one.
    pub cause: Option<String>,
    /// What an operator can do.
    pub remedy: String,
    /// Whether only an operator can end the failure.
    pub is_permanent: bool,
}

impl WallFailure {
    /// Converts a backend's error.
    pub fn of(error: &BackendError) -> Self {
        Self {
            what: error.to_string(),
            cause: std::error::Error::source(error).map(ToString::to_string),
            remedy: remedy(error),
            is_permanent: matches!(error, BackendError::Unsupported { .. }),
        }
    }

    /// What failed and why, in one line.
    pub fn summary(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{} ({cause})", self.what),
            None => self.what.clone(),
        }
    }
}

/// A backend behind a circuit breaker.
#[derive(Clone)]
pub(crate) struct Circuit(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone)]
enum State {
    Closed {
        failures: u32,
        /// When sandboxes could be built again, if they once could not.
        regained_at: Option<Instant>,
    },
    Doubted {
        regained_at: Option<Instant>,
    },
    Open {
        failure: Arc<WallFailure>,
        since: Instant,
        probe_at: Instant,
    },
}

impl Circuit {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let state = watch::Sender::new(State::Closed { failures: 0, regained_at: None });
        Self(Arc::new(Inner { backend, state }))
    }

    /// Why nothing is built at the moment, if so.
    pub(crate) fn failure(&self) -> Option<Arc<WallFailure>> {
        match &*self.0.state.borrow() {
            State::Open { failure, .. } => Some(Arc::clone(failure)),
            State::Closed { .. } | State::Doubted { .. } => None,
        }
    }

    /// When sandboxes could be built again, if they once could not.
    pub(crate) fn regained_at(&self) -> Option<std::time::Instant> {
        match &*self.0.state.borrow() {
            State::Closed { regained_at, .. } | State::Doubted { regained_at } => {
                regained_at.map(Instant::into_std)
            }
            State::Open { .. } => None,
        }
    }

    /// Completes when sandboxes can be built again after a failure.
    pub(crate) async fn regained(&self) {
        let mut state = self.0.state.subscribe();
        // `self` holds the sender, so the wait ends only with the expected state.
        state.wait_for(|state| matches!(state, State::Open { .. })).await.ok();
        state.wait_for(|state| matches!(state, State::Closed { .. })).await.ok();
    }
}

impl Inner {
    /// Whether a build may be tried.
    async fn admit(&self) -> Result<(), BackendError> {
        let mut state = match &*self.state.borrow() {
            State::Closed { .. } => return Ok(()),
            State::Open { failure, probe_at, .. } => return Err(suspended(failure, *probe_at)),
            State::Doubted { .. } => self.state.subscribe(),
        };
        // `self` holds the sender, so the wait always returns a state.
        match state.wait_for(|state| !matches!(state, State::Doubted { .. })).await.as_deref() {
            Ok(State::Open { failure, probe_at, .. }) => Err(suspended(failure, *probe_at)),
            _ => Ok(()),
        }
    }

    fn succeed(&self) {
        // In the usual case there is no failure to reset, and waiters are not notified.
        if matches!(*self.state.borrow(), State::Closed { failures: 1.., .. }) {
            self.state.send_if_modified(|state| match state {
                State::Closed { failures, .. } => std::mem::take(failures) > 0,
                State::Doubted { .. } | State::Open { .. } => false,
            });
        }
    }

    fn fail(self: &Arc<Self>) {
        let is_doubted = self.state.send_if_modified(|state| match state {
            State::Closed { failures, regained_at } => {
                *failures += 1;
                let is_doubted = *failures >= FAILURES_MAX;
                if is_doubted {
                    *state = State::Doubted { regained_at: *regained_at };
                }
                is_doubted
            }
            State::Doubted { .. } | State::Open { .. } => false,
        });
        if is_doubted {
            tokio::spawn(probe_until_it_works(Arc::downgrade(self)));
        }
    }

    fn open(&self, error: &BackendError, pause: Duration) {
        let failure = Arc::new(WallFailure::of(error));
        let now = Instant::now();
        let told = Arc::clone(&failure);
        let mut is_new = false;
        self.state.send_modify(|state| {
            let since = match state {
                State::Open { since, .. } => *since,
                State::Closed { .. } | State::Doubted { .. } => {
                    is_new = true;
                    now
                }
            };
            *state = State::Open { failure, since, probe_at: now + pause };
        });
        if is_new {
            let WallFailure { what, cause, remedy, .. } = &*told;
            tracing::error!(reason = %what, cause, remedy = %remedy, "wall_unavailable");
        }
    }

    fn close(&self) {
        let mut after = None;
        self.state.send_modify(|state| {
            let regained_at = match state {
                State::Open { since, .. } => {
                    after = Some(since.elapsed());
                    Some(Instant::now())
                }
                State::Closed { regained_at, .. } | State::Doubted { regained_at } => *regained_at,
            };
            *state = State::Closed { failures: 0, regained_at };
        });
        if let Some(after) = after {
            let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(after_ms, "wall_available_again");
        }
    }
}

/// Runs one probe at a time, for as long as the engine exists.
async fn probe_until_it_works(circuit: Weak<Inner>) {
    let mut growing = PAUSE_MIN;
    loop {
        let Some(inner) = circuit.upgrade() else { return };
        let pause = match inner.backend.probe().await {
            Ok(_) => return inner.close(),
            Err(error) => {
                let pause = match &error {
                    BackendError::Unavailable { retry_after_ms, .. } => {
                        Duration::from_millis(*retry_after_ms).clamp(PAUSE_MIN, PAUSE_MAX)
                    }
                    _ => {
                        let now = growing;
                        growing = (growing * 2).min(PAUSE_MAX);
                        now
                    }
                };
                inner.open(&error, pause);
                pause
            }
        };
        drop(inner);
        tokio::time::sleep(pause).await;
    }
}

impl Backend for Circuit {
    fn name(&self) -> &'static str {
        self.0.backend.name()
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        self.0.backend.probe()
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        self.0.backend.workspaces()
    }

    fn inventory(&self) -> &dyn Inventory {
        self.0.backend.inventory()
    }

    fn is_warmable(&self) -> bool {
        self.0.backend.is_warmable()
    }

    fn failures(&self) -> FailureCounts {
        self.0.backend.failures()
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async move {
            self.0.admit().await?;
            let built = self.0.backend.create(spec).instrument(tracing::debug_span!("create")).await;
            match &built {
                Ok(_) => self.0.succeed(),
                // The caller gets the error.
                Err(_) => self.0.fail(),
            }
            built
        })
    }
}

fn suspended(failure: &WallFailure, probe_at: Instant) -> BackendError {
    let pause = probe_at.saturating_duration_since(Instant::now()).max(RETRY_MIN);
    let retry_after_ms = u64::try_from(pause.as_millis()).ok().filter(|_| !failure.is_permanent);
    let WallFailure { what, cause, remedy, .. } = failure.clone();
    BackendError::Suspended { what, cause, remedy, retry_after_ms }
}

/// The remedy for a sandbox that could not be built.
fn remedy(error: &BackendError) -> String {
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOSPC: i32 = 28;
    let source = match error {
        BackendError::Unsupported { remedy, .. } | BackendError::Suspended { remedy, .. } => {
            return remedy.clone();
        }
        BackendError::Unavailable { .. } => {
            return "look at the service that the wall needs, and at the connection to it".to_owned();
        }
        BackendError::Unverified { .. } | BackendError::Unfit { .. } => {
            return "this kernel does not keep what it was asked for: report it with the output of `palisade doctor --json`"
                .to_owned();
        }
        BackendError::Build { source, .. } => source,
    };
    let words = match source.raw_os_error() {
        Some(EAGAIN) => {
            "raise the number of processes that the server may have (TasksMax of its unit, `ulimit -u`)"
        }
        Some(ENOMEM) => "the machine has no memory left: end other programs, or lower admission.memory_mb",
        Some(EMFILE | ENFILE) => {
            "raise the number of files that the server may open (LimitNOFILE of its unit, `ulimit -n`)"
        }
        Some(ENOSPC) => {
            "a limit of the kernel is reached: compare `sysctl user` with the namespaces in use (`lsns`), and \
             look for room on the disk (`df`)"
        }
        _ if source.kind() == ErrorKind::TimedOut => {
            "the kernel does not finish this step: look for processes that hang in it (`ps -eo pid,stat,wchan,comm`, \
             `dmesg | grep 'blocked for more than'`); if there are any, only a restart of the machine helps"
        }
        _ => {
            "the step and its cause say what the kernel refused: compare with \"Examining a machine\" in docs/OPERATIONS.md"
        }
    };
    words.to_owned()
}

#[cfg(test)]
#[path = "circuit_tests.rs"]
mod tests;
