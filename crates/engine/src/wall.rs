//! One wall of an engine: its backend behind a circuit breaker, its spares and its languages.
//!
//! An engine has one wall or several; the first one is the default. Each wall fails, recovers, keeps spares and
//! knows languages for itself. Admission is common to all walls, because they share the machine.

use std::path::Path;
use std::sync::Arc;

use policy::{Denial, WallDemand};
use sandbox::{Backend, Kernel, Sandbox, SandboxSpec};
use tracing::Instrument;

use crate::Engine;
use crate::circuit::{Circuit, WallFailure};
use crate::pool::{Lease, Pool, PoolParts, PoolSnapshot, Want};
use crate::result::RunError;
use crate::runtimes::Runtimes;
use crate::unstarted::Unstarted;

/// One wall of an engine.
pub struct Wall {
    backend: Circuit,
    pub(crate) pool: Pool,
    runtimes: Runtimes,
}

impl Wall {
    /// The default wall of an engine keeps the results of its canaries under the names of the languages alone.
    pub(crate) fn new(backend: Arc<dyn Backend>, pool: &PoolParts<'_>, state_dir: &Path, rank: Rank) -> Self {
        let circuit = Circuit::new(backend);
        let backend: Arc<dyn Backend> = Arc::new(circuit.clone());
        let label = (rank == Rank::Further).then(|| backend.name());
        Self {
            pool: Pool::new(pool, &backend),
            runtimes: Runtimes::new(Arc::clone(&backend), state_dir, label),
            backend: circuit,
        }
    }

    /// Its name in requests and results.
    pub fn name(&self) -> &'static str {
        self.backend.name()
    }

    /// The kernel that its programs reach.
    pub fn kernel(&self) -> Kernel {
        Kernel::of_wall(self.name())
    }

    /// Its backend, behind the circuit breaker.
    pub fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    /// Its languages.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// Why it cannot build a sandbox at the moment, or `None` while no such failure is known.
    pub fn failure(&self) -> Option<Arc<WallFailure>> {
        self.backend.failure()
    }

    /// When it became able to build sandboxes again, if it once failed to.
    pub fn regained_at(&self) -> Option<std::time::Instant> {
        self.backend.regained_at()
    }

    /// Completes when it can build sandboxes again after a failure.
    pub async fn regained(&self) {
        self.backend.regained().await;
    }

    /// Its spares at this moment.
    pub fn pool_snapshot(&self) -> PoolSnapshot {
        PoolSnapshot { wall: self.name(), ..self.pool.snapshot() }
    }

    /// Builds a sandbox of that spec now. Fails unless every required guarantee is enforced.
    pub(crate) async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, Unstarted> {
        let sandbox = self.backend.create(spec).await.map_err(|error| Unstarted::wall(&error))?;
        // No silent fallback: a sandbox with a missing guarantee is destroyed again.
        let missing = sandbox.enforced().missing(&spec.absence_allowed);
        if missing.is_empty() { Ok(sandbox) } else { Err(Unstarted::incomplete(&missing)) }
    }

    /// Obtains a sandbox: a spare if one is ready, otherwise a newly built one.
    pub(crate) async fn lease(&self, want: &Want<'_>) -> Result<Lease, Unstarted> {
        let span = tracing::debug_span!(
            "lease",
            language = want.language,
            purpose = want.purpose.name(),
            is_spare = tracing::field::Empty
        );
        async {
            let spare = self.pool.lease(want).await;
            tracing::Span::current().record("is_spare", spare.is_some());
            match spare {
                Some(lease) => Ok(lease),
                None => self.create(want.spec).await.map(Lease::cold),
            }
        }
        .instrument(span)
        .await
    }
}

/// The place of a wall among those of its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    Default,
    Further,
}

impl Engine {
    /// All walls, the default first.
    pub fn walls(&self) -> impl DoubleEndedIterator<Item = &Wall> {
        std::iter::once(&self.default_wall).chain(&self.further_walls)
    }

    /// The wall of that name, or the default one.
    pub fn wall(&self, name: Option<&str>) -> Option<&Wall> {
        match name {
            None => Some(&self.default_wall),
            Some(name) => self.walls().find(|wall| wall.name() == name),
        }
    }

    /// The wall that a call gets; see [`policy::choose_wall`].
    pub(crate) fn choose_wall(&self, demand: &WallDemand) -> Result<&Wall, RunError> {
        let names: Vec<&str> = self.walls().map(Wall::name).collect();
        match policy::choose_wall(&names, self.policy().least_kernel, demand) {
            Ok(name) => {
                self.wall(Some(name)).ok_or_else(|| RunError::new("unknown_wall", "the wall is gone"))
            }
            Err(Denial { code, reason, remedy }) => Err(RunError::new(code, reason).remedy(remedy)),
        }
    }

    /// The wall of that name, otherwise the error for the caller.
    pub(crate) fn known_wall(&self, name: &str) -> Result<&Wall, RunError> {
        match self.wall(Some(name)) {
            Some(wall) => Ok(wall),
            // Answers with the names that there are.
            None => self.choose_wall(&WallDemand::named(name)),
        }
    }

    /// The wall of a persistent sandbox, if the caller may still run programs behind it.
    pub(crate) fn keep_wall(&self, name: &str, lists: &[Vec<String>]) -> Result<&Wall, RunError> {
        let wall = self.known_wall(name)?;
        let demand = WallDemand { wanted: None, lists: lists.to_vec() };
        match policy::choose_wall(&[name], self.policy().least_kernel, &demand) {
            Ok(_) => Ok(wall),
            Err(Denial { code, .. }) => {
                let message =
                    format!("the sandbox is behind the wall `{name}`, which this call may not have any more");
                Err(RunError::new(code, message).remedy("open another sandbox"))
            }
        }
    }

    /// The answer of a wall that keeps no files, so that no sandbox can last behind it.
    pub(crate) fn cannot_last(&self, wall: &Wall) -> RunError {
        let keeping: Vec<&str> =
            self.walls().filter(|other| other.backend().workspaces().is_some()).map(Wall::name).collect();
        if keeping.is_empty() {
            let message = "this server has no persistent sandboxes: its wall keeps no files";
            return RunError::new("no_persistence", message)
                .remedy("run without sandbox_id, with all files among the inputs of each run");
        }
        let message =
            format!("no persistent sandbox can be behind the wall `{}`: it keeps no files", wall.name());
        RunError::new("wall_cannot_last", message)
            .remedy(format!("ask for one of {}, or run without sandbox_id", keeping.join(", ")))
    }
}
