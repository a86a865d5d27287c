//! Runs: from a request to an outcome, over any backend.
//!
//! A request walks through [`Engine::run`]: checked, decided by policy, admitted, given a sandbox whose wall
//! is complete, spoken to through its guest, ended by the program or by a limit, judged from what the host
//! measured. This crate never names a backend and never believes a guest.

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
mod guest_client;
mod guest_stream;
mod handle;
mod image;
mod output;
mod pool;
mod principal;
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

use std::collections::BTreeMap;
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
pub use pool::PoolConfig;
pub use principal::{PRINCIPAL_BYTES_MAX, Principal};
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

/// What the engine is made of.
pub struct EngineConfig {
    /// Where state is kept.
    pub state_dir: PathBuf,
    /// Put before a probe's command line, so that it ends with this process (see [`Runtimes`]); may be empty.
    pub launcher: Vec<String>,
    /// What runs may have.
    pub policy: Policy,
    /// How many at once.
    pub admission: AdmissionLimits,
    /// Which spares are kept.
    pub pool: PoolConfig,
    /// This very program, which some runtimes start again inside the sandbox to read programs there.
    pub executable: Option<PathBuf>,
    /// Interpreters by language, instead of those on the PATH.
    pub interpreters: BTreeMap<String, PathBuf>,
}

/// Runs programs.
pub struct Engine {
    backend: circuit::Circuit,
    runtimes: Runtimes,
    policy: Policy,
    admission: Arc<admission::Admission>,
    pool: pool::Pool,
    builds: builds::Builds,
    failures: Arc<Failures>,
    executable: Option<PathBuf>,
    state_dir: PathBuf,
    /// Whether things are made ready ahead.
    is_warm: bool,
}

impl Engine {
    /// An engine over one backend.
    pub fn new(backend: Arc<dyn Backend>, config: EngineConfig) -> Self {
        let admission = Arc::new(admission::Admission::new(config.admission));
        let circuit = circuit::Circuit::new(backend);
        let backend: Arc<dyn Backend> = Arc::new(circuit.clone());
        let failures = Arc::<Failures>::default();
        Self {
            pool: pool::Pool::new(config.pool, &backend, &admission, &failures),
            backend: circuit,
            builds: builds::Builds::new(&config.state_dir, &failures),
            state_dir: config.state_dir.clone(),
            runtimes: Runtimes::new(config.state_dir, config.interpreters, config.launcher),
            policy: config.policy,
            admission,
            failures,
            executable: config.executable,
            is_warm: config.pool.is_on,
        }
    }

    /// The wall in use.
    pub fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    /// Why no sandbox can be built at the moment; nothing as long as it is not known that none can.
    pub fn wall_failure(&self) -> Option<Arc<WallFailure>> {
        self.backend.failure()
    }

    /// Where failures are told of which no caller hears.
    pub fn failure_log(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// How often something failed of which no caller heard, here and in the backend.
    pub fn failures(&self) -> FailureCounts {
        telemetry::added(self.failures.counts(), self.backend.failures())
    }

    /// When sandboxes could be built again, if they once could not.
    pub fn wall_regained_at(&self) -> Option<std::time::Instant> {
        self.backend.regained_at()
    }

    /// Completes when sandboxes can be built again after they could not.
    pub async fn wall_regained(&self) {
        self.backend.regained().await;
    }

    /// Languages known and found.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// Runs that wait for a place now.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Waits for a place; spares make way for a run that lacks memory.
    pub(crate) async fn admit(&self, memory_bytes: u64) -> Result<admission::Permit, Busy> {
        let missing = self.admission.memory_missing(memory_bytes);
        if missing > 0 {
            self.pool.give_way(missing);
        }
        self.admission.admit(memory_bytes).instrument(tracing::debug_span!("admission")).await
    }

    /// Destroys all spares; runs that come later have their sandboxes built.
    pub async fn close_pool(&self) {
        self.pool.close().await;
    }

    /// The spares at this moment.
    pub fn pool_snapshot(&self) -> telemetry::PoolSnapshot {
        self.pool.snapshot()
    }

    /// Where state is kept.
    pub(crate) fn state_dir(&self) -> &std::path::Path {
        &self.state_dir
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
