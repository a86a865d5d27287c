//! What callers of persistent sandboxes say and get.

use policy::Ask;
use sandbox::Limits;
use tokio::sync::mpsc;

use super::entry::SandboxEntry;
use super::{ContextInfo, SandboxId};
use crate::packages::{InstalledPackages, Wanted};

/// A request to open a sandbox.
#[derive(Debug, Default)]
pub struct OpenRequest {
    /// A name for people to read.
    pub name: Option<String>,
    /// Limits of the whole sandbox.
    pub ask: Ask,
    /// How long the sandbox is kept without use.
    pub ttl_s: Option<u64>,
    /// The wall that it is behind: a name or `own_kernel`. `None` asks for the default one.
    pub wall: Option<String>,
    /// The lists of walls of the caller's policy. The wall must be in each.
    pub wall_lists: Vec<Vec<String>>,
    /// The names of what its runs may ask for outside.
    pub access: Vec<String>,
    /// The packages that its programs import.
    pub packages: Vec<Wanted>,
    /// Is told the progress of their installation. A full channel loses messages.
    pub install_progress: Option<mpsc::Sender<String>>,
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxInfo {
    /// Its handle.
    pub id: SandboxId,
    /// A name for people to read.
    pub name: String,
    /// When it was opened, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it was last used.
    pub used_ms: u64,
    /// When it is closed unless it is used before.
    pub expires_ms: u64,
    /// The number of runs so far.
    pub runs: u64,
    /// The interpreters that are awake, with their contexts: `python`, `python#etl`.
    pub awake: Vec<String>,
    /// All interpreters that have or had a state.
    pub contexts: Vec<ContextInfo>,
    /// The size of its files, as last measured.
    pub disk_bytes: u64,
    /// Its limits.
    pub limits: Limits,
    /// The names of what its runs may ask for outside.
    pub access: Vec<String>,
    /// The packages that were installed in it.
    pub packages: Vec<InstalledPackages>,
}

pub(super) fn info(entry: &SandboxEntry) -> SandboxInfo {
    SandboxInfo {
        id: entry.record.id.clone(),
        name: entry.record.name.clone(),
        created_ms: entry.record.created_ms,
        used_ms: entry.used_ms(),
        expires_ms: entry.expires_ms(),
        runs: entry.runs(),
        awake: entry.awake(),
        contexts: entry.contexts(),
        disk_bytes: entry.disk_bytes.load(std::sync::atomic::Ordering::Relaxed),
        limits: entry.record.limits.clone(),
        access: entry.record.access.clone(),
        packages: entry.packages(),
    }
}
