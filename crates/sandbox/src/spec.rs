//! What a sandbox must provide. The engine builds a spec from policy; every backend understands it.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::workspace::WorkspaceRef;
use crate::{Guarantee, Limits};

/// The directory of the program's files, in every sandbox.
pub const WORKSPACE: &str = "/workspace";
/// Where programs look for commands, before the directories that a runtime adds.
pub const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The stack of a process's first thread (`ulimit -s`), unless the wall's own system has less.
pub const STACK_BYTES: u64 = 8 << 20;

/// What a sandbox must provide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSpec {
    /// How much it may use.
    pub limits: Limits,
    /// The highest limits that [`crate::Warmable::take_limits`] may give to a spare. Settings that can only be
    /// lowered later start at these values. `None`: the sandbox keeps its limits.
    pub headroom: Option<Limits>,
    /// Paths of the wall's own world that the runtime needs, as the wall's [inventory](crate::Inventory) named
    /// them. The engine does not interpret them.
    pub binds: Vec<ReadOnlyBind>,
    /// Read-only directories of the server (compiled programs, packages).
    pub layers: Vec<Layer>,
    /// Empty directories at which layers may be attached while the sandbox exists ([`crate::Sandbox::attach`]). One of
    /// them may be the target of a layer, too.
    pub attach_points: Vec<PathBuf>,
    /// Directories of the operator that a program which serves the operator may use. A run of a caller has none.
    pub folders: Vec<SharedFolder>,
    /// Keeps the layers from being removed while something may use this spec.
    pub in_use: InUse,
    /// Where the sandbox shows a Palisade executable, which parses programs inside. `None`: it needs none.
    pub executable_at: Option<PathBuf>,
    /// Small files placed read-only in the sandbox (drivers).
    pub files: Vec<PlacedFile>,
    /// Symbolic links in the sandbox: absolute path and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// First bytes for the guest, which the guest may act on before the host has verified the sandbox. They
    /// may start an interpreter, but never contain a program.
    pub opening: Vec<u8>,
    /// A warm interpreter, a copy of which may serve as the interpreter that `opening` starts.
    pub zygote: Option<ZygoteSpec>,
    /// The files that are the workspace and outlive the sandbox. `None`: the workspace is in memory.
    pub workspace: Option<WorkspaceRef>,
    /// Guarantees whose absence the operator allowed by name.
    pub absence_allowed: Vec<Guarantee>,
}

/// A warm interpreter from which sandboxes are cloned, if the backend supports that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZygoteSpec {
    /// Program and arguments that start it. Its copies replace the program that is opened with `fork`.
    pub argv: Vec<String>,
    /// Its complete environment, which its copies inherit.
    pub env: Vec<(String, String)>,
}

/// A read-only directory of the server that appears inside. A local wall binds `path`. A remote wall sends the
/// content once per digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Names the content: two layers with the same digest have the same files.
    pub digest: String,
    /// The directory on the server. It does not change while the sandbox exists.
    pub path: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
}

/// A directory of the operator that appears inside, for a program that works with it. It has the same path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFolder {
    /// Absolute path, without symbolic links.
    pub path: PathBuf,
    /// Whether the program may change it. The sandbox's limit of disk space does not cover it.
    pub is_writable: bool,
}

/// What keeps layers from being removed, for as long as a copy of it exists. Two of them are always equal: they say nothing
/// about the content of a sandbox.
#[derive(Clone, Default)]
pub struct InUse(Vec<Arc<dyn Any + Send + Sync>>);

impl InUse {
    /// Adds what keeps one layer.
    pub fn add(&mut self, keeper: Arc<dyn Any + Send + Sync>) {
        self.0.push(keeper);
    }
}

impl PartialEq for InUse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for InUse {}

impl fmt::Debug for InUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "InUse({})", self.0.len())
    }
}

/// A directory or file of the wall's own world that appears inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadOnlyBind {
    /// Absolute path outside: on the host of a local wall, in the image of another one.
    pub path: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether the sandbox is built without it if it no longer exists.
    pub optional: bool,
}

impl ReadOnlyBind {
    /// A bind with the same path outside and inside.
    pub fn in_place(path: PathBuf) -> Self {
        Self { target: path.clone(), path, optional: false }
    }

    /// The same, for a path that the sandbox can do without.
    pub fn in_place_if_there(path: PathBuf) -> Self {
        Self { optional: true, ..Self::in_place(path) }
    }
}

/// A file created in the sandbox before anything runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its content. All specs that place it share one allocation, which also makes comparing specs cheap.
    pub content: Arc<[u8]>,
}
