//! The traits every wall implements: make a sandbox, hand back a byte stream, measure, destroy.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::Pin;

use crate::{Enforced, FailureCounts, Limits, SandboxSpec};

/// A boxed future, so that backends can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a backend could not do its part. Never the program's fault.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This machine cannot make such a sandbox.
    #[error("this machine cannot build the wall: {what}")]
    Unsupported {
        /// What failed, with the operating system's reason.
        what: String,
        /// What an operator can do.
        remedy: String,
    },
    /// A step of building failed.
    #[error("building the sandbox failed at {step}")]
    Build {
        /// The step, as the backend names it.
        step: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// Several builds in a row failed, so none is tried for a while. Backends do not give this one; the engine does, around
    /// any backend.
    #[error("no sandbox can be built at present: {what}")]
    Suspended {
        /// What failed, as the backend says it.
        what: String,
        /// The operating system's reason, where there is one.
        cause: Option<String>,
        /// What an operator can do.
        remedy: String,
        /// When it may work again; nothing where it will not without an operator.
        retry_after_ms: Option<u64>,
    },
    /// The wall that was built is not the wall that was asked for.
    #[error("the wall was checked from outside and is not complete: {what}")]
    Unverified {
        /// What was found.
        what: String,
    },
    /// A sandbox that stands cannot be given such limits; one that is built for them can have them.
    #[error("the sandbox cannot be given these limits: {what}")]
    Unfit {
        /// Which, and why.
        what: String,
    },
}

/// Something that can put a wall around a program.
pub trait Backend: Send + Sync {
    /// The name reported with each run.
    fn name(&self) -> &'static str;

    /// What this machine can really enforce, found out by building a wall and looking at it.
    fn probe(&self) -> BoxFuture<'_, Result<Enforced, BackendError>>;

    /// User and group on the host that files of a lasting workspace belong to.
    fn owner_of(&self, identity: u32) -> (u32, u32);

    /// How often something failed of which no caller heard.
    fn failures(&self) -> FailureCounts {
        FailureCounts::default()
    }

    /// Builds a sandbox whose guest is waiting on its stream.
    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> BoxFuture<'a, Result<Box<dyn Sandbox>, BackendError>>;
}

/// A wall with a guest inside. Dropping it destroys it and every process in it.
pub trait Sandbox: Send {
    /// What is enforced on this very sandbox, as the host sees it.
    fn enforced(&self) -> &Enforced;

    /// How long each part of building took.
    fn phases(&self) -> &StartPhases;

    /// The byte stream to the guest; given out once.
    fn take_stream(&mut self) -> Option<UnixStream>;

    /// Everything in it is ready and waits for somebody: takes hold of what will be needed then, while nobody waits.
    fn settle(&mut self) {}

    /// Gives a sandbox in which no program was started yet the limits of a run: they hold from now on, usage counts
    /// from now on, and both were looked at from outside. [`BackendError::Unfit`] means that nothing was changed;
    /// after any other error, also that the guest is gone, it is good for nothing and must be destroyed.
    fn take_limits<'a>(&'a mut self, limits: &'a Limits) -> BoxFuture<'a, Result<(), BackendError>>;

    /// What the sandbox has used so far, measured by the host.
    fn usage(&mut self) -> Usage;

    /// Begins a new measurement, before the program to be measured starts: usage counts from now on, and these are the
    /// limits that the host watches. Whoever just looked at a lasting workspace tells what it holds; otherwise it is
    /// looked at here.
    fn measure_anew<'a>(&'a mut self, limits: &'a Limits, held: Option<DiskHeld>) -> BoxFuture<'a, ()>;

    /// Whether no process inside ran since the last look, so that another would find what that one found. Cheap; where
    /// it cannot be told, it is not so.
    fn is_quiet(&mut self) -> bool {
        false
    }

    /// One look at the limits that only the host can watch, for a sandbox in which no run is on.
    fn look(&mut self) -> BoxFuture<'_, Option<Ending>>;

    /// Completes when a limit that only the host can watch was passed; pends forever otherwise.
    fn watch(&mut self) -> BoxFuture<'_, Ending>;

    /// Kills everything inside and waits until nothing of it can run any more. What the kernel then still has to take back
    /// is awaited by [`Sandbox::destroy`], which must follow; what was used is known here already.
    fn quiesce(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>> {
        self.destroy()
    }

    /// Kills everything inside and waits until it is dead; calling it again changes nothing.
    fn destroy(&mut self) -> BoxFuture<'_, Result<Usage, BackendError>>;
}

/// What a workspace on disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskHeld {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Everything that has a name.
    pub inodes: u64,
}

/// Why a backend ended or would end a sandbox by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Memory beyond the limit.
    Memory,
    /// Processor time beyond the limit.
    Cpu,
    /// Disk beyond the limit.
    Disk,
    /// More of what all sandboxes share in the kernel (sockets, file locks) than one may have.
    KernelShare,
    /// The guest is gone.
    Gone,
}

/// What a sandbox used, and which limits it ran into, as counted by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of all processes.
    pub cpu_us: u64,
    /// Highest memory use, files of the sandbox included where the kernel counts them so.
    pub memory_peak_bytes: u64,
    /// Highest number of processes and threads, the guest included.
    pub processes_peak: u64,
    /// Processes killed because the memory limit was reached.
    pub oom_kills: u64,
    /// Times a process or thread was refused.
    pub process_refusals: u64,
    /// Whether the writable space was seen full (bytes or inodes).
    pub disk_full: bool,
}

/// Times of the parts of building a sandbox, in microseconds.
#[derive(Debug, Clone, Default)]
pub struct StartPhases {
    /// Part and duration, in order.
    pub parts_us: Vec<(&'static str, u64)>,
}
