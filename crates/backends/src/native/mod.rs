//! The native backend: namespaces, a private root, seccomp, Landlock, control groups. It needs no daemon, no
//! root, no KVM.
//!
//! The server makes one [`NativeBackend`] around the spawner that it forked at its start. `create` performs
//! these steps: control groups, plan, spawner, report, examination from outside ([`verify`]), consent. The
//! host trusts no report about anything it can observe itself. An interpreter may start meanwhile; a program
//! is sent only afterwards.

mod build;
mod cgroup;
mod deaths;
mod descriptors;
mod disk;
mod free;
mod identity;
mod inhabitants;
mod kernel_file;
mod lease;
mod nameless;
mod network;
mod plan;
mod progress;
mod quiescence;
mod sandbox;
mod sockets;
mod status;
mod tree;
mod verify;
mod watch;
mod zygotes;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ::sandbox::workspace::{WorkspaceRef, WorkspaceStore};
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
use crate::host::HostParts;
use crate::host::inventory::HostInventory;
use crate::host::workspace::{HostWorkspaces, Owner};

pub use self::cgroup::CgroupState;

/// The native backend.
pub struct NativeBackend {
    spawner: Arc<Spawner>,
    cgroups: Cgroups,
    identities: Arc<Identities>,
    /// `None`: no persistent sandboxes.
    workspaces: Option<HostWorkspaces>,
    system: System,
    zygotes: Zygotes,
    inventory: HostInventory,
    made: AtomicU64,
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
        let cgroups = Cgroups::detect(&spawner, &failures);
        Self {
            spawner,
            cgroups,
            identities: Arc::new(Identities::detect()),
            workspaces: None,
            system: System::detect(),
            zygotes: Zygotes::default(),
            inventory: HostInventory::new(&HostParts::default()),
            made: AtomicU64::new(0),
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
        self.workspaces = Some(HostWorkspaces::new(&parts.state_dir, owners, Arc::clone(&self.failures)));
        self.system.set_executable(parts.executable);
        self
    }

    /// What was determined about control groups, for `doctor`.
    pub fn cgroup_state(&self) -> CgroupState {
        self.cgroups.state()
    }

    /// Whether sandboxes run with the server user's identity on the host.
    pub fn shares_own_identity(&self) -> bool {
        self.identities.are_own()
    }

    /// The directory of the workspace that a sandbox shows, if its files last.
    fn workspace_path(&self, spec: &SandboxSpec) -> Result<Option<PathBuf>, BackendError> {
        let Some(of) = &spec.workspace else { return Ok(None) };
        let unsupported = |what: String| BackendError::Unsupported {
            what,
            remedy: "give the server a state directory on a disk".to_owned(),
        };
        let workspaces = self.workspaces.as_ref();
        let workspaces = workspaces.ok_or_else(|| unsupported("it has no files that last".to_owned()))?;
        workspaces.path(of).map(Some).map_err(|error| unsupported(error.to_string()))
    }

    /// Ensures that the top directory of a workspace belongs to its identity. That identity created
    /// everything beneath it.
    fn adopt(&self, of: &WorkspaceRef, path: &Path) -> io::Result<()> {
        use rustix::fs::{Gid, Mode, OFlags, Uid};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let (uid, gid) = self.identities.lasting(of.identity).numbers();
        let found = rustix::fs::fstat(&directory)?;
        if (found.st_uid, found.st_gid) != (uid, gid) {
            rustix::fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(())
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
        self.workspaces.as_ref().map(|workspaces| workspaces as &dyn WorkspaceStore)
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
fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

fn at(step: &'static str) -> impl Fn(io::Error) -> BackendError {
    move |source| BackendError::Build { step: step.to_owned(), source }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
