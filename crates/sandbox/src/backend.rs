//! The traits that every backend implements: build a sandbox, return its byte stream, measure it, destroy it.
//!
//! [`Backend`] and [`Sandbox`] are the core that every wall can keep, including a wall on another machine.
//! [`Warmable`] is an extension for walls whose sandboxes can be built ahead of demand. Everything that a
//! remote wall must wait for is asynchronous, and nothing names a path, a user or a descriptor of the machine
//! on which the sandbox runs. The engine calls these traits. The contract is checked by
//! [`crate::conformance`].

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::Pin;

use crate::workspace::WorkspaceStore;
use crate::{Enforced, FailureCounts, Inventory, Layer, Limits, SandboxSpec};

/// When the caller may retry after a single failed build, in milliseconds.
const BUILD_RETRY_MS: u64 = 1000;

/// A boxed future, so that backends can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a backend failed. The cause is never the program.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This machine cannot build such a sandbox.
    #[error("this machine cannot build the wall: {what}")]
    Unsupported {
        /// What failed, with the operating system's reason.
        what: String,
        /// What the operator can do.
        remedy: String,
    },
    /// A build step failed.
    #[error("building the sandbox failed at {step}")]
    Build {
        /// The step, as the backend names it.
        step: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The wall cannot serve now but may later: its daemon restarts, the connection to it broke, or it has no
    /// room. The circuit breaker counts it like a failed build, and probes again when the wall says so.
    #[error("the wall is not available at present: {what}")]
    Unavailable {
        /// What is missing, with the operating system's reason.
        what: String,
        /// When a retry may succeed.
        retry_after_ms: u64,
    },
    /// Several consecutive builds failed, so the engine tries none for a while. Backends do not return this
    /// variant; the engine does, around any backend.
    #[error("no sandbox can be built at present: {what}")]
    Suspended {
        /// What failed, as the backend reported it.
        what: String,
        /// The operating system's reason, if any.
        cause: Option<String>,
        /// What the operator can do.
        remedy: String,
        /// When a retry may succeed; `None` if it cannot succeed without an operator.
        retry_after_ms: Option<u64>,
    },
    /// The sandbox that was built differs from the sandbox that was requested.
    #[error("the wall was checked from outside and is not complete: {what}")]
    Unverified {
        /// What the check found.
        what: String,
    },
    /// An existing sandbox cannot be given these limits; a sandbox built for them can.
    #[error("the sandbox cannot be given these limits: {what}")]
    Unfit {
        /// Which limit, and why.
        what: String,
    },
}

impl BackendError {
    /// When the same request may succeed. `None` if it cannot succeed without an operator.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Unsupported { .. } => None,
            Self::Unavailable { retry_after_ms, .. } => Some(*retry_after_ms),
            Self::Suspended { retry_after_ms, .. } => *retry_after_ms,
            Self::Build { .. } | Self::Unverified { .. } | Self::Unfit { .. } => Some(BUILD_RETRY_MS),
        }
    }
}

/// A way to isolate a program.
pub trait Backend: Send + Sync {
    /// The name of the wall, reported with each run. No two walls of one engine have the same name.
    fn name(&self) -> &'static str;

    /// What this machine can enforce. The backend finds out by building a sandbox and examining it.
    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>>;

    /// Builds a sandbox whose guest waits on its stream.
    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>>;

    /// The languages that its sandboxes have.
    fn inventory(&self) -> &dyn Inventory;

    /// Whether its sandboxes are [`Warmable`], so that the pool may keep spares.
    fn is_warmable(&self) -> bool {
        false
    }

    /// The files of persistent sandboxes. `None`: this wall has no files that last, so it has no persistent
    /// sandboxes.
    fn workspaces(&self) -> Option<&dyn WorkspaceStore> {
        None
    }

    /// How often something failed that no caller was told about.
    fn failures(&self) -> FailureCounts {
        FailureCounts::default()
    }
}

/// An isolated environment with a guest inside. Dropping it destroys it and every process in it.
pub trait Sandbox: Send {
    /// What is enforced on this sandbox, as observed from the host.
    fn enforced(&self) -> &Enforced;

    /// How long each build step took.
    fn phases(&self) -> &StartPhases;

    /// The byte stream to the guest. Only the first call returns it.
    fn take_stream(&mut self) -> Option<UnixStream>;

    /// What the sandbox has used so far, as measured by the host.
    fn usage(&mut self) -> BoxFuture<'_, Usage>;

    /// Begins a new measurement, before the program to be measured starts. Usage counts from now on, and the
    /// host watches these limits. A caller that has just measured a persistent workspace passes the result in
    /// `held`; otherwise the backend measures it here.
    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()>;

    /// Whether no process inside has run since the last look, so that another look would find the same. The
    /// check is cheap. A backend that cannot tell returns `false`.
    fn is_quiet(&mut self) -> bool {
        false
    }

    /// Checks once the limits that only the host can watch, for a sandbox without an active run.
    fn look(&mut self) -> BoxFuture<'_, Option<Ending>>;

    /// Completes when a limit that only the host can watch has been exceeded; otherwise stays pending
    /// forever.
    fn watch(&mut self) -> BoxFuture<'_, Ending>;

    /// Shows a layer in the existing sandbox, at one of the spec's attach points, read-only and over what is shown there. Programs
    /// inside see it when this returns. After an error nothing has changed inside. A wall that cannot do this returns
    /// [`BackendError::Unsupported`], as the default does.
    fn attach<'a>(&'a mut self, layer: &'a Layer) -> BoxFuture<'a, Result<(), BackendError>> {
        let unsupported = BackendError::Unsupported {
            what: format!("a layer cannot be attached at {}", layer.target.display()),
            remedy: "open a sandbox that shows it from the start".to_owned(),
        };
        Box::pin(std::future::ready(Err(unsupported)))
    }

    /// Kills everything inside and waits until it is dead. The call is idempotent.
    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>>;

    /// The extension for sandboxes that can be built ahead of demand. Every sandbox of a backend that
    /// [is warmable](Backend::is_warmable) has it.
    fn warmable(&mut self) -> Option<&mut dyn Warmable> {
        None
    }
}

/// A sandbox that can be built before its run is known, and whose teardown can follow the answer.
pub trait Warmable: Send {
    /// Called when the sandbox is ready and idle. It acquires what a lease will need, so that no caller waits
    /// for it later.
    fn settle(&mut self);

    /// Gives a sandbox in which no program has started the limits of a run. From then on the limits hold and
    /// usage is counted, and the host has verified both.
    ///
    /// [`BackendError::Unfit`] means that nothing was changed. After any other error, including the end of
    /// the guest, the sandbox is unusable and must be destroyed.
    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Kills everything inside and waits until none of its processes can run any more. The final usage is
    /// known at this point. [`Sandbox::destroy`] must follow; it waits for the resources that the kernel
    /// still has to release.
    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>>;
}

/// What a workspace on disk contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskHeld {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Number of directory entries.
    pub inodes: u64,
}

/// Why a backend ended or would end a sandbox on its own initiative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Memory limit exceeded.
    Memory,
    /// Processor time limit exceeded.
    Cpu,
    /// Disk limit exceeded.
    Disk,
    /// More than one sandbox's share of kernel resources that all sandboxes use (sockets, file locks).
    KernelShare,
    /// The guest has ended.
    Gone,
}

/// What a sandbox used and which limits it reached, as counted by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of all processes.
    pub cpu_us: u64,
    /// Peak memory use. It includes the sandbox's files where the kernel counts them as memory.
    pub memory_peak_bytes: u64,
    /// Peak number of processes and threads, including the guest.
    pub processes_peak: u64,
    /// Processes killed because the memory limit was reached.
    pub oom_kills: u64,
    /// How many times the kernel refused to create a process or thread.
    pub process_refusals: u64,
    /// Whether the writable space was found full (bytes or inodes).
    pub disk_full: bool,
}

/// Durations of the build steps of a sandbox, in microseconds.
#[derive(Debug, Clone, Default)]
pub struct StartPhases {
    /// Step and duration, in order.
    pub parts_us: Vec<(&'static str, u64)>,
}
