//! What a sandbox must be: produced by policy, understood by every backend.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Guarantee, Limits};

/// Where the program's own files are, in every sandbox.
pub const WORKSPACE: &str = "/workspace";

/// What a sandbox must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSpec {
    /// How much it may use.
    pub limits: Limits,
    /// The most that [`crate::Sandbox::take_limits`] will give it, where it is built ahead: what can only be lowered
    /// later begins there. Nothing: it has its limits for good.
    pub headroom: Option<Limits>,
    /// Parts of the host that the runtime needs, beyond the system's own directories.
    pub binds: Vec<ReadOnlyBind>,
    /// Small files placed read-only in the sandbox (drivers).
    pub files: Vec<PlacedFile>,
    /// First bytes for the guest, which it may act on before the wall was examined: at most the start of an
    /// interpreter, never a program.
    pub opening: Vec<u8>,
    /// An interpreter that runs already somewhere, of which a copy may be the one that `opening` starts.
    pub zygote: Option<ZygoteSpec>,
    /// A directory of the host that is the workspace and outlives the sandbox; nothing: one in memory.
    pub workspace: Option<LastingWorkspace>,
    /// Guarantees whose absence the operator allowed by name.
    pub absence_allowed: Vec<Guarantee>,
}

/// A warm interpreter from which sandboxes are cloned, where the backend can do that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZygoteSpec {
    /// Program and arguments that start it; its copies take the place of the program that is opened with `fork`.
    pub argv: Vec<String>,
    /// Its whole environment, and that of its copies.
    pub env: Vec<(String, String)>,
}

/// A workspace on the host's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastingWorkspace {
    /// The directory on the host.
    pub path: PathBuf,
    /// The directory above it that holds all such workspaces.
    pub among: PathBuf,
    /// Chooses the identity that its files belong to, the same for every sandbox that shows it.
    pub identity: u32,
}

/// A directory or file of the host that appears inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadOnlyBind {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
}

impl ReadOnlyBind {
    /// The same place outside and inside.
    pub fn in_place(path: PathBuf) -> Self {
        Self { target: path.clone(), path }
    }
}

/// A file made in the sandbox before anything runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its content, shared by all that place it: what is the same is then also quickly seen to be.
    pub content: Arc<[u8]>,
}
