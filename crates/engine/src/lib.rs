//! The engine: carries a run from its request to its outcome, over any backend.
//!
//! [`Engine::run`] performs these steps:
//!
//! - It checks the request and asks the policy for the limits.
//! - It admits the run and obtains a sandbox with every guarantee enforced.
//! - It sends the program to the guest and follows it until the program or a limit ends the run.
//! - It decides the outcome from host measurements.
//!
//! This crate depends on no concrete backend and trusts nothing that a guest reports.

mod admission;
mod builds;
#[cfg(any(test, fuzzing))]
pub mod checks;
mod circuit;
mod clock;
mod compile;
mod conclusion;
mod conversation;
mod diagnostics;
mod display;
mod driver;
mod feed;
mod gatekeeper;
mod guest_client;
mod guest_stream;
mod handle;
mod image;
mod output;
mod pool;
mod request;
mod result;
mod run;
mod runs;
pub mod runtimes;
mod sandboxes;
pub mod store;
pub mod telemetry;
#[cfg(test)]
mod test_events;
mod typed;
mod unstarted;
mod validate;
mod variables;
mod verdict;
pub mod workspace;

use std::path::PathBuf;
use std::sync::Arc;

use policy::Policy;
use sandbox::{Backend, FailureCounts, Failures};
use tracing::Instrument;

pub use admission::{AdmissionLimits, Busy};
pub use circuit::WallFailure;
pub use conversation::{RunEvent, Stop};
pub use display::{
    DISPLAY_BYTES_MAX, DISPLAYS_BYTES_MAX, DISPLAYS_MAX, Display, DisplayKind, is_whole_image,
};
pub use policy::{Caller, PRINCIPAL_BYTES_MAX, Principal};
pub use pool::PoolConfig;
pub use request::{
    ARGS_MAX, CODE_BYTES_MAX, INPUT_BYTES_MAX, INPUTS_MAX, InputFile, RunRequest, Stdin, VARIABLES_BYTES_MAX,
};
pub use result::{Artifact, BuildReport, Execution, Lasting, RunError, RunPhase, RunResult, RunUsage, Value};
pub use runs::{
    Durability, FinishedRun, FoundRun, LOG_READ_BYTES_MAX, ListedRun, LiveRun, LogPart, LogRange,
    RunElsewhere, RunId, RunNews, Runs, RunsConfig, StartedRun,
};
pub use runtimes::{CanaryMemory, Runtime, RuntimeError, Runtimes};
pub use sandboxes::{OpenRequest, SandboxId, SandboxInfo, Sandboxes, unknown_sandbox};
pub use store::{Retention, Store, StoreConfig, StoreError};
pub use validate::{Finding, MissingImport, Validation};

/// The parts from which an [`Engine`] is built.
pub struct EngineConfig {
    /// The directory that holds the server's state.
    pub state_dir: PathBuf,
    /// The limits that runs may have.
    pub policy: Policy,
    /// How many runs may execute at once.
    pub admission: AdmissionLimits,
    /// Which spares the pool keeps.
    pub pool: PoolConfig,
}

/// Runs programs in sandboxes.
pub struct Engine {
    backend: circuit::Circuit,
    runtimes: Runtimes,
    policy: Policy,
    admission: Arc<admission::Admission>,
    pool: pool::Pool,
    builds: builds::Builds,
    failures: Arc<Failures>,
    state_dir: PathBuf,
    /// Whether the engine prepares sandboxes and interpreters ahead of demand.
    is_warm: bool,
}

impl Engine {
    /// Creates an engine over one backend.
    pub fn new(backend: Arc<dyn Backend>, config: EngineConfig) -> Self {
        let admission = Arc::new(admission::Admission::new(config.admission));
        let circuit = circuit::Circuit::new(backend);
        let backend: Arc<dyn Backend> = Arc::new(circuit.clone());
        let failures = Arc::<Failures>::default();
        Self {
            pool: pool::Pool::new(config.pool, &backend, &admission, &failures),
            backend: circuit,
            runtimes: Runtimes::new(backend, &config.state_dir),
            builds: builds::Builds::new(&config.state_dir, &failures),
            state_dir: config.state_dir,
            policy: config.policy,
            admission,
            failures,
            is_warm: config.pool.is_on,
        }
    }

    /// The backend in use.
    pub fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    /// Why the backend cannot build a sandbox at the moment, or `None` while no such failure is known.
    pub fn wall_failure(&self) -> Option<Arc<WallFailure>> {
        self.backend.failure()
    }

    /// The log of failures that are not reported to any caller.
    pub fn failure_log(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// Counts of the failures that no caller was told about, in the engine and in the backend.
    pub fn failures(&self) -> FailureCounts {
        telemetry::added(self.failures.counts(), self.backend.failures())
    }

    /// When the backend became able to build sandboxes again, if it once failed to.
    pub fn wall_regained_at(&self) -> Option<std::time::Instant> {
        self.backend.regained_at()
    }

    /// Completes when the backend can build sandboxes again after a failure.
    pub async fn wall_regained(&self) {
        self.backend.regained().await;
    }

    /// The known languages and their interpreters.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// The number of runs that wait for admission now.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Waits for admission. When memory is short, the pool gives up spares for the run.
    pub(crate) async fn admit(&self, memory_bytes: u64) -> Result<admission::Permit, Busy> {
        let missing = self.admission.memory_missing(memory_bytes);
        if missing > 0 {
            self.pool.give_way(missing);
        }
        self.admission.admit(memory_bytes).instrument(tracing::debug_span!("admission")).await
    }

    /// Destroys all spares. Later runs build their own sandboxes.
    pub async fn close_pool(&self) {
        self.pool.close().await;
    }

    /// The state of the pool at this moment.
    pub fn pool_snapshot(&self) -> telemetry::PoolSnapshot {
        self.pool.snapshot()
    }

    /// The directory that holds the server's state.
    pub(crate) fn state_dir(&self) -> &std::path::Path {
        &self.state_dir
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
