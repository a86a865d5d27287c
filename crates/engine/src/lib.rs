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

pub mod access;
pub mod admin;
mod admission;
mod advice;
pub mod audit;
pub mod backup;
mod builds;
#[cfg(any(test, fuzzing))]
pub mod checks;
mod circuit;
mod clock;
mod compile;
mod conclusion;
mod conversation;
mod damage;
mod diagnostics;
mod display;
mod driver;
mod feed;
mod gatekeeper;
mod given;
mod guest_client;
mod guest_stream;
mod handle;
mod image;
pub mod links;
mod missing;
mod output;
pub mod packages;
mod pool;
mod programs;
mod request;
mod result;
mod run;
mod run_spec;
mod runs;
pub mod runtimes;
mod sandboxes;
mod state_disk;
pub mod store;
pub mod telemetry;
mod terminal;
#[cfg(test)]
mod test_events;
mod typed;
mod unpack;
mod unstarted;
mod validate;
mod variables;
mod verdict;
mod wall;
pub mod workspace;

use std::path::PathBuf;
use std::sync::Arc;

use policy::Policy;
use sandbox::{Backend, FailureCounts, Failures};
use tracing::Instrument;

use self::wall::Rank;

pub use admission::{AdmissionLimits, Busy};
pub use circuit::WallFailure;
pub use conversation::{RunEvent, Stop};
pub use display::{
    DISPLAY_BYTES_MAX, DISPLAYS_BYTES_MAX, DISPLAYS_MAX, Display, DisplayKind, is_whole_image,
};
pub use gatekeeper::{
    APPROVAL_DENIED, APPROVAL_REQUIRED, Admitted, Approval, ApprovalDecision, ApprovalError, ApprovalId,
    ApprovalState, ApprovalStore, Approvals, Approver, Choice, Claim, ClaimEnd, Decided, Decision, Fold,
    Gatekeeper, IDEMPOTENCY_CONFLICT, IDEMPOTENCY_INTERRUPTED, IDEMPOTENCY_KEY_BYTES_MAX,
    IDEMPOTENCY_RUNNING, IdempotencyKey, JudgedCall, Key, KeyDigest, KeyError, KeyId, KeyState, KeyText,
    KeyedCall, Keys, KeysSeen, Listed, NESTED_APPROVAL_PATIENCE, NO_HANDLE, NewKey, NotAKey, OpenQuestion,
    POLICY_DENIED, QUOTA_EXCEEDED, QuotaUse, RULE_TOOL_ASKS, Recalled, Record, Shown, ShownKey, counted,
    decisions, shown_arguments, visible,
};
pub use given::{ENVIRONMENT_BYTES_MAX, Given, Proxies, Proxy, Secret};
pub use policy::{Caller, PRINCIPAL_BYTES_MAX, Principal, SecretsBefore, WallDemand};
pub use pool::PoolConfig;
pub use programs::{ProgramEnd, RunningProgram, ServerProgram};
pub use request::{
    ARGS_MAX, CODE_BYTES_MAX, INPUT_BYTES_MAX, INPUTS_MAX, InputFile, RunRequest, Stdin, TerminalRequest,
    VARIABLES_BYTES_MAX,
};
pub use result::{Artifact, BuildReport, Execution, Lasting, RunError, RunPhase, RunResult, RunUsage, Value};
pub use runs::{
    Durability, FinishedRun, FoundRun, InstallRequest, LOG_READ_BYTES_MAX, ListedRun, LiveRun, LogPart,
    LogRange, RunElsewhere, RunId, RunNews, Runs, RunsConfig, StartedRun,
};
pub use runtimes::{CanaryMemory, Runtime, RuntimeError, Runtimes};
pub use sandboxes::{
    CONTEXT_NAME_BYTES_MAX, CONTEXT_SEPARATOR, ContextInfo, ContextName, Installed, OpenRequest,
    SandboxAddress, SandboxId, SandboxInfo, Sandboxes, unknown_sandbox,
};
pub use store::{Retention, Store, StoreConfig, StoreError};
pub use unpack::{ARCHIVE_SUFFIXES, is_archive};
pub use validate::{Finding, MissingImport, Validation};
pub use wall::Wall;
pub use wire::{Stream, WindowSize};

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
    default_wall: Wall,
    further_walls: Vec<Wall>,
    policy: Policy,
    admission: Arc<admission::Admission>,
    builds: builds::Builds,
    failures: Arc<Failures>,
    /// Whether the engine prepares sandboxes and interpreters ahead of demand.
    is_warm: bool,
    gatekeeper: Arc<Gatekeeper>,
    /// What the links of all runs may hold.
    pub(crate) link_memory: Arc<links::LinkMemory>,
    /// What runs may ask for outside.
    access: std::sync::OnceLock<Arc<dyn access::AccessBook>>,
    reach_log: Arc<access::ReachLog>,
    /// The packages that runs may ask for.
    packages: std::sync::OnceLock<Arc<dyn packages::PackageBook>>,
    popular: packages::PopularModules,
}

/// Lowers the memory limits to what admission can ever grant, so that a larger request is clamped and told
/// instead of being refused at every attempt.
fn affordable(mut policy: Policy, admission: &admission::Admission) -> Policy {
    let most = admission.memory_bytes_max();
    for limits in [&mut policy.defaults, &mut policy.maxima] {
        limits.memory_bytes = limits.memory_bytes.min(most);
    }
    policy
}

impl Engine {
    /// Creates an engine over one wall.
    pub fn new(backend: Arc<dyn Backend>, config: EngineConfig) -> Self {
        Self::with_walls(backend, Vec::new(), config)
    }

    /// Creates an engine over several walls. A request that names none gets the default. Of two walls with the
    /// same name, the first one is used.
    pub fn with_walls(
        default: Arc<dyn Backend>,
        further: Vec<Arc<dyn Backend>>,
        config: EngineConfig,
    ) -> Self {
        let mut others: Vec<Arc<dyn Backend>> = Vec::new();
        for backend in further {
            let name = backend.name();
            if std::iter::once(&default).chain(&others).any(|known| known.name() == name) {
                tracing::error!(wall = name, "wall_name_taken");
            } else {
                others.push(backend);
            }
        }
        let admission = Arc::new(admission::Admission::new(config.admission));
        let failures = Arc::<Failures>::default();
        // The pools share the memory for spares evenly: its maximum is for all of them together.
        let warm =
            std::iter::once(&default).chain(&others).filter(|backend| backend.is_warmable()).count().max(1);
        let memory_bytes_max = config.pool.memory_bytes_max / warm as u64;
        let pool = pool::PoolParts {
            config: PoolConfig { memory_bytes_max, ..config.pool },
            admission: &admission,
            failures: &failures,
        };
        let wall = |backend, rank| Wall::new(backend, &pool, &config.state_dir, rank);
        let gatekeeper = Gatekeeper::new(&config.state_dir, policy::Book::default());
        let reach_log = access::ReachLog::new(&config.state_dir).with_audit(gatekeeper.audit().clone());
        Self {
            default_wall: wall(default, Rank::Default),
            further_walls: others.into_iter().map(|backend| wall(backend, Rank::Further)).collect(),
            gatekeeper: Arc::new(gatekeeper),
            builds: builds::Builds::new(&config.state_dir, &failures),
            policy: affordable(config.policy, &admission),
            is_warm: config.pool.is_on,
            admission,
            failures,
            link_memory: Arc::default(),
            access: std::sync::OnceLock::new(),
            reach_log: Arc::new(reach_log),
            packages: std::sync::OnceLock::new(),
            popular: packages::PopularModules::default(),
        }
    }

    /// The backend of the default wall.
    pub fn backend(&self) -> &dyn Backend {
        self.default_wall.backend()
    }

    /// Why the default wall cannot build a sandbox at the moment, or `None` while no such failure is known.
    pub fn wall_failure(&self) -> Option<Arc<WallFailure>> {
        self.default_wall.failure()
    }

    /// The log of failures that are not reported to any caller.
    pub fn failure_log(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// Counts of the failures that no caller was told about, in the engine and in its walls.
    pub fn failures(&self) -> FailureCounts {
        let of_walls = self.walls().map(|wall| wall.backend().failures());
        of_walls.fold(self.failures.counts(), telemetry::added)
    }

    /// When the default wall became able to build sandboxes again, if it once failed to.
    pub fn wall_regained_at(&self) -> Option<std::time::Instant> {
        self.default_wall.regained_at()
    }

    /// Completes when the default wall can build sandboxes again after a failure.
    pub async fn wall_regained(&self) {
        self.default_wall.regained().await;
    }

    /// The known languages, with their toolchains behind the default wall.
    pub fn runtimes(&self) -> &Runtimes {
        self.default_wall.runtimes()
    }

    /// The number of runs that wait for admission now.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Waits for admission. When memory is short, the pools give up spares for the run, that of the default
    /// wall last.
    pub(crate) async fn admit(&self, memory_bytes: u64) -> Result<admission::Permit, Busy> {
        let mut missing = self.admission.memory_missing(memory_bytes);
        for wall in self.walls().rev() {
            if missing > 0 {
                missing = missing.saturating_sub(wall.pool.give_way(missing));
            }
        }
        self.admission.admit(memory_bytes).instrument(tracing::debug_span!("admission")).await
    }

    /// Destroys all spares. Later runs build their own sandboxes.
    pub async fn close_pool(&self) {
        for wall in self.walls() {
            wall.pool.close().await;
        }
    }

    /// The spares of the default wall at this moment.
    pub fn pool_snapshot(&self) -> telemetry::PoolSnapshot {
        self.default_wall.pool_snapshot()
    }

    /// The record of what runs reached outside.
    pub fn reach_log(&self) -> &Arc<access::ReachLog> {
        &self.reach_log
    }

    /// Judges calls of tools. It knows no policy until it is given some.
    pub fn gatekeeper(&self) -> &Gatekeeper {
        &self.gatekeeper
    }

    /// The same, for brokers that judge calls of their own.
    pub fn shared_gatekeeper(&self) -> Arc<Gatekeeper> {
        Arc::clone(&self.gatekeeper)
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}
