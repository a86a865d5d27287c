//! One wall of an engine: its backend behind a circuit breaker, its spares and its languages.
//!
//! An engine has one wall or several; the first one is the default. Each wall fails, recovers, keeps spares and
//! knows languages for itself. Admission is common to all walls, because they share the machine.

use std::path::Path;
use std::sync::Arc;

use sandbox::{Backend, Sandbox, SandboxSpec};
use tracing::Instrument;

use crate::Engine;
use crate::circuit::{Circuit, WallFailure};
use crate::pool::{Lease, Pool, PoolParts, PoolSnapshot, Want};
use crate::result::RunError;
use crate::runtimes::Runtimes;
use crate::unstarted::Unstarted;

/// The longest part of an unknown name that an error repeats.
const NAME_CHARACTERS_MAX: usize = 64;

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

    /// The wall of that name, or the default one; otherwise the error for the caller.
    pub(crate) fn known_wall(&self, name: Option<&str>) -> Result<&Wall, RunError> {
        self.wall(name).ok_or_else(|| {
            let name: String = name.unwrap_or_default().chars().take(NAME_CHARACTERS_MAX).collect();
            let known = self.walls().map(Wall::name).collect::<Vec<_>>().join(", ");
            RunError::new("unknown_wall", format!("there is no wall `{name}` on this server; it has {known}"))
                .remedy(format!("use one of {known}, or none for the default"))
        })
    }
}
