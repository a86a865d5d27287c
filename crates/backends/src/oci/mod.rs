//! Walls whose namespaces an OCI runtime makes: runc, crun, gVisor.
//!
//! The sandbox shows the same parts of the host, has the same limits and control groups and the same guest as a native
//! one; another program builds it. Who trusts that program more than ours, or wants gVisor's kernel between a program
//! and the host's, uses such a wall.
//!
//! ```text
//! bundle -> stage + create (home::Home, runtime::Runtime) -> start -> the guest raises the last walls and reports
//!        -> examination from outside (native::verify) -> a sandbox as any other
//! death: process 1 by pidfd -> control groups -> the runtime's `delete`, behind the answer
//! ```
//! What the runtime built is examined before a program is sent, as the native wall's own work is. A container that is
//! not what was asked for is destroyed, and the run refused.

mod build;
mod config;
pub(crate) mod contents;
mod home;
mod network;
mod runtime;
mod sentry;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use ::sandbox::workspace::WorkspaceStore;
use ::sandbox::{
    Backend, BackendError, BoxFuture, Enforced, FailureCounts, Failures, Inventory, Sandbox, SandboxSpec,
};
use tracing::Instrument;

use self::home::Home;
use self::sentry::SentrySandbox;
use crate::host::inventory::HostInventory;
use crate::host::{HostParts, Local};
use crate::native::NativeBackend;

pub use self::runtime::OciRuntime;
/// The first argument with which a guest prepares the mounts of a bundle.
pub use jail::STAGE_ROLE;

/// The program that is process 1 of containers, and that prepares their roots outside.
#[derive(Debug, Clone)]
pub enum GuestProgram {
    /// Its bytes, which the wall writes to the state directory: the static guest.
    Bytes(&'static [u8]),
    /// An executable that calls `static_guest::take_role` first, for tests.
    File(PathBuf),
}

/// What the configuration says about such a wall.
#[derive(Debug, Clone)]
pub struct OciConfig {
    /// Which runtime.
    pub runtime: OciRuntime,
    /// Its executable; `None`: found on the PATH.
    pub program: Option<PathBuf>,
    /// The guest.
    pub guest: GuestProgram,
}

/// A wall with an OCI runtime.
pub struct OciBackend {
    local: Local,
    home: Arc<Home>,
    inventory: HostInventory,
    failures: Arc<Failures>,
}

impl OciBackend {
    /// A wall beside the native one of the same server, with which it shares control groups and identities.
    pub fn beside(native: &NativeBackend, config: OciConfig, parts: &HostParts) -> Self {
        let local = native.local();
        let failures = Arc::<Failures>::default();
        let home = Home::new(config, &parts.state_dir, &local.cgroups, &failures);
        Self { local, home: Arc::new(home), inventory: HostInventory::new(parts), failures }
    }

    /// The spec with limits that leave room for the runtime's own processes, where it has some.
    fn with_room<'a>(&self, spec: &'a SandboxSpec) -> Cow<'a, SandboxSpec> {
        match self.home.kind() {
            OciRuntime::Runc | OciRuntime::Crun => Cow::Borrowed(spec),
            OciRuntime::Gvisor => Cow::Owned(SandboxSpec {
                limits: sentry::widened(&spec.limits),
                headroom: spec.headroom.as_ref().map(sentry::widened),
                ..spec.clone()
            }),
        }
    }
}

impl Backend for OciBackend {
    fn name(&self) -> &'static str {
        self.home.kind().name()
    }

    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>> {
        Box::pin(async {
            let mut sandbox = self.create(&SandboxSpec::default()).await?;
            let enforced = sandbox.enforced().clone();
            sandbox.destroy().await?;
            Ok(enforced)
        })
    }

    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        self.local.workspaces.as_deref().map(|workspaces| workspaces as &dyn WorkspaceStore)
    }

    fn inventory(&self) -> &dyn Inventory {
        &self.inventory
    }

    fn is_warmable(&self) -> bool {
        true
    }

    fn failures(&self) -> FailureCounts {
        self.failures.counts()
    }

    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>> {
        Box::pin(async move {
            let built = self.build(&self.with_room(spec)).instrument(tracing::debug_span!("wall")).await;
            let is_gvisor = self.home.kind() == OciRuntime::Gvisor;
            built.map(|sandbox| match is_gvisor {
                true => Box::new(SentrySandbox(sandbox)) as Box<dyn Sandbox>,
                false => Box::new(sandbox) as Box<dyn Sandbox>,
            })
        })
    }
}
