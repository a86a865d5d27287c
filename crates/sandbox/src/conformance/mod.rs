//! The conformance suite that every backend passes, including the fake one.
//!
//! A backend's tests call [`check`] inside their runtime. The suite examines the contract from outside, one
//! [`Area`] after the other, and its error names the area and the violated clause. It does not test what a
//! particular backend blocks; the escape suite does.
//!
//! The suite needs no runtime and does not know the guest's protocol. A caller whose sandboxes run programs
//! passes a [`Guest`], which starts them; the clauses that need a program are left out without it.

mod ends;
mod inventory;
mod layers;
mod lease;
mod links;
mod measures;
mod promises;
mod stream;
#[cfg(test)]
mod tests;
mod wait;
mod workspace;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::{Backend, BoxFuture, Limits, Sandbox, SandboxSpec};

/// How long a backend may take for one step of a clause. Slow machines set `PALISADE_PATIENCE` to multiply it.
fn patience() -> Duration {
    let factor = std::env::var("PALISADE_PATIENCE").ok().and_then(|number| number.parse::<u32>().ok());
    Duration::from_secs(20) * factor.unwrap_or(1).max(1)
}

/// Speaks to the guests of the backend.
pub trait Guest: Sync {
    /// Takes over the stream of a new sandbox and waits until its guest is up.
    fn connect(&self, stream: UnixStream) -> BoxFuture<'_, Result<Box<dyn Shell>, String>>;
}

/// A sandbox in which commands can be run.
pub trait Shell: Send {
    /// Runs a command of sh(1) in the workspace and returns what it wrote. An error is a guest that did not
    /// answer; a command that fails is none.
    fn run<'a>(&'a mut self, command: &'a str) -> BoxFuture<'a, Result<String, String>>;

    /// The same while the guest listens at this loopback port. Every connection is a link whose bytes come back.
    /// The listener and its links are gone afterwards.
    fn run_with_echo<'a>(&'a mut self, port: u16, command: &'a str) -> BoxFuture<'a, Result<String, String>>;

    /// Makes the guest end from inside, as if it had crashed. Returns when its stream has ended.
    fn end(self: Box<Self>) -> BoxFuture<'static, Result<(), String>>;
}

/// What is examined.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The backend.
    pub backend: &'a dyn Backend,
    /// What runs programs in its sandboxes. `None`: they run none.
    pub guest: Option<&'a dyn Guest>,
}

/// A part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// What probe and sandboxes say about guarantees.
    Promises,
    /// The byte stream to the guest.
    Stream,
    /// Destruction, dropping, and guests that end by themselves.
    Ends,
    /// What the host measures.
    Usage,
    /// Limits that the host watches during a run.
    Watch,
    /// Limits that the host checks without a run.
    Look,
    /// Limits at lease, and teardown in two steps, of sandboxes that are built ahead.
    Lease,
    /// Files that last.
    Workspace,
    /// Languages.
    Inventory,
    /// Read-only directories of the server.
    Layers,
    /// Connections of programs that the stream carries.
    Links,
}

impl Area {
    /// Every area, in the order in which they are checked.
    pub const ALL: [Self; 11] = [
        Self::Promises,
        Self::Stream,
        Self::Ends,
        Self::Usage,
        Self::Watch,
        Self::Look,
        Self::Lease,
        Self::Workspace,
        Self::Inventory,
        Self::Layers,
        Self::Links,
    ];

    /// Whether it applies to the subject: not every backend has spares or files that last, and not every test
    /// can run programs.
    pub fn applies_to(self, subject: Subject<'_>) -> bool {
        match self {
            Self::Usage | Self::Watch | Self::Look | Self::Layers | Self::Links => subject.guest.is_some(),
            Self::Lease => subject.backend.is_warmable(),
            Self::Workspace => subject.backend.workspaces().is_some(),
            Self::Promises | Self::Stream | Self::Ends | Self::Inventory => true,
        }
    }
}

/// Checks every area that applies. Returns the areas that were checked; the error names the first violated
/// clause.
pub async fn check(subject: Subject<'_>) -> Result<Vec<Area>, String> {
    let areas: Vec<Area> = Area::ALL.into_iter().filter(|area| area.applies_to(subject)).collect();
    for area in &areas {
        check_area(subject, *area).await?;
    }
    Ok(areas)
}

/// Checks one area.
pub async fn check_area(subject: Subject<'_>, area: Area) -> Result<(), String> {
    let checked = match area {
        Area::Promises => promises::check(subject).await,
        Area::Stream => stream::check(subject).await,
        Area::Ends => ends::check(subject).await,
        Area::Usage => measures::check_usage(subject).await,
        Area::Watch => measures::check_watch(subject).await,
        Area::Look => measures::check_look(subject).await,
        Area::Lease => lease::check(subject).await,
        Area::Workspace => workspace::check(subject).await,
        Area::Inventory => inventory::check(subject).await,
        Area::Layers => layers::check(subject).await,
        Area::Links => links::check(subject).await,
    };
    checked.map_err(|clause| format!("{area:?}: {clause}"))
}

impl Subject<'_> {
    async fn create(&self) -> Result<Box<dyn Sandbox>, String> {
        self.create_as(&SandboxSpec { limits: Limits::default(), ..SandboxSpec::default() }).await
    }

    async fn create_as(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, String> {
        let created = wait::within("create returns", self.backend.create(spec)).await?;
        created.map_err(|error| format!("create: {error}"))
    }

    /// A sandbox with a shell in it.
    async fn inhabited(&self, spec: &SandboxSpec) -> Result<(Box<dyn Sandbox>, Box<dyn Shell>), String> {
        let guest = self.guest.ok_or("no guest runs programs")?;
        let mut sandbox = self.create_as(spec).await?;
        let stream = sandbox.take_stream().ok_or("a new sandbox has a stream")?;
        let shell = wait::within("the guest comes up", guest.connect(stream)).await??;
        Ok((sandbox, shell))
    }
}

/// Destroys a sandbox within the patience.
async fn destroy(sandbox: &mut Box<dyn Sandbox>) -> Result<crate::Usage, String> {
    let destroyed = wait::within("destroy returns", sandbox.destroy()).await?;
    destroyed.map_err(|error| format!("destroy: {error}"))
}

/// Runs a command within the patience.
async fn run(shell: &mut Box<dyn Shell>, command: &str) -> Result<String, String> {
    wait::within(&format!("`{command}` ends"), shell.run(command)).await?
}

/// An error if the clause does not hold.
fn holds(is_so: bool, clause: &str, found: &dyn std::fmt::Debug) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("{clause}; found {found:?}")) }
}
