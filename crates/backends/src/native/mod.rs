//! The native backend: namespaces, a private root, seccomp, Landlock, control groups. It needs no daemon, no
//! root, no KVM.
//!
//! The server makes one [`NativeBackend`] around the spawner that it forked at its start. `create` performs
//! these steps: control groups, plan, spawner, report, examination from outside ([`verify`]), consent. The
//! host trusts no report about anything it can observe itself. An interpreter may start meanwhile; a program
//! is sent only afterwards.

mod attach;
mod build;
pub(crate) mod cgroup;
pub(crate) mod deaths;
mod descriptors;
mod disk;
mod free;
mod id_space;
pub(crate) mod identity;
mod inhabitants;
pub(crate) mod kernel_file;
mod lease;
mod nameless;
mod network;
pub(crate) mod plan;
mod progress;
mod quiescence;
pub(crate) mod sandbox;
mod sockets;
pub(crate) mod status;
mod surroundings;
mod tree;
pub(crate) mod verify;
mod watch;
mod zygotes;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ::sandbox::workspace::WorkspaceStore;
use ::sandbox::{
    Backend, BackendError, BoxFuture, Enforced, FailureCounts, Failures, Inventory, Sandbox, SandboxSpec,
};
use jail::{GuestMain, Spawner};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::Instrument;

use self::cgroup::Cgroups;
use self::deaths::Deaths;
use self::identity::Identities;
use self::plan::System;
use self::zygotes::Zygotes;
use crate::host::inventory::HostInventory;
use crate::host::workspace::{HostWorkspaces, Owner};
use crate::host::{HostParts, Local};

pub use self::cgroup::CgroupState;
pub use self::surroundings::{GroupMounts, Surroundings};

/// The native backend.
pub struct NativeBackend {
    spawner: Arc<Spawner>,
    cgroups: Arc<Cgroups>,
    identities: Arc<Identities>,
    /// `None`: no persistent sandboxes.
    workspaces: Option<Arc<HostWorkspaces>>,
    system: System,
    zygotes: Zygotes,
    inventory: HostInventory,
    /// How many sandboxes were made, by this wall and those that share its control groups.
    made: Arc<AtomicU64>,
    deaths: Arc<Deaths>,
    failures: Arc<Failures>,
}

/// Forks the process that will make sandboxes. The server must call it before any thread exists.
pub fn start_spawner(guest: GuestMain) -> io::Result<Spawner> {
    Spawner::start(guest, &Identities::detect().next(0))
}

impl NativeBackend {
    /// Examines this machine and takes over the spawner.
    pub fn new(spawner: Spawner) -> Self {
        let spawner = Arc::new(spawner);
        let failures = Arc::<Failures>::default();
        let cgroups = Arc::new(Cgroups::detect(&spawner, &failures));
        Self {
            spawner,
            cgroups,
            identities: Arc::new(Identities::detect()),
            workspaces: None,
            system: System::detect(),
            zygotes: Zygotes::default(),
            inventory: HostInventory::new(&HostParts::default()),
            made: Arc::default(),
            deaths: Arc::new(Deaths::new(&failures)),
            failures,
        }
    }

    /// Enables sandboxes that are clones of warm interpreters. `library` is the library that such an
    /// interpreter loads (crates/zygote).
    #[must_use]
    pub fn with_zygotes(mut self, library: &'static [u8]) -> Self {
        self.zygotes = Zygotes::new(Arc::clone(&self.spawner), library, Arc::clone(&self.failures));
        self
    }

    /// Gives it what local walls take from the host: languages, and the directory of persistent sandboxes.
    /// Without it, the backend has neither.
    #[must_use]
    pub fn with_host(mut self, parts: HostParts) -> Self {
        self.inventory = HostInventory::new(&parts);
        let identities = Arc::clone(&self.identities);
        let owners = move |identity| {
            let (uid, gid) = identities.lasting(identity).numbers();
            Owner { uid, gid }
        };
        let workspaces = HostWorkspaces::new(&parts.state_dir, owners, Arc::clone(&self.failures));
        self.workspaces = Some(Arc::new(workspaces));
        self.system.set_executable(parts.executable);
        self
    }

    /// What other walls of this server share with it.
    pub(crate) fn local(&self) -> Local {
        Local {
            cgroups: Arc::clone(&self.cgroups),
            identities: Arc::clone(&self.identities),
            system: self.system.clone(),
            made: Arc::clone(&self.made),
            deaths: Arc::clone(&self.deaths),
            workspaces: self.workspaces.clone(),
            spawner: Arc::clone(&self.spawner),
        }
    }

    /// What was determined about control groups, for `doctor`.
    pub fn cgroup_state(&self) -> CgroupState {
        self.cgroups.state()
    }

    /// Whether sandboxes run with the server user's identity on the host.
    pub fn shares_own_identity(&self) -> bool {
        self.identities.are_own()
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
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
        self.workspaces.as_deref().map(|workspaces| workspaces as &dyn WorkspaceStore)
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
            let built = self.build(spec).instrument(tracing::debug_span!("wall")).await;
            built.map(|sandbox| Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

/// Registers a file descriptor with the async runtime.
#[expect(
    deprecated,
    reason = "an OwnedFd never changes its number, so the case the replacement guards is not ours"
)]
pub(crate) fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

pub(crate) fn at(step: &'static str) -> impl Fn(io::Error) -> BackendError {
    move |source| BackendError::Build { step: step.to_owned(), source }
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
