//! What the native backend asks the jail to build. Plain data, decided entirely by the trusted side.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{IdMap, ZygoteIds};

/// Everything needed to raise one set of walls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailPlan {
    /// Which identity the sandbox has on the host.
    pub id_map: IdMap,
    /// Directory of the unified hierarchy to be born into.
    pub unified_cgroup: Option<PathBuf>,
    /// Whether the host will send `tasks` files of version 1 hierarchies to join (see [`crate::send_groups`]).
    pub joins_groups: bool,
    /// Parts of the host that appear inside, read-only, in the order given.
    pub binds: Vec<Bind>,
    /// Symbolic links made in the new root: where, and what they say.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// Files made in the new root.
    pub files: Vec<PlanFile>,
    /// A directory of the host that is the workspace, writable: its path there, and where it appears inside.
    pub workspace: Option<(PathBuf, PathBuf)>,
    /// The writable space.
    pub scratch: Scratch,
    /// Limits of each process.
    pub rlimits: Rlimits,
    /// Whether a cgroup counts memory; else calls whose memory no process shows are refused.
    pub memory_counted: bool,
    /// Host name inside.
    pub hostname: String,
    /// How long process 1 stays when its stream has ended and nobody ends it; everything else inside is killed at once. At
    /// most [`LINGER_MS_MAX`].
    pub linger_ms: u32,
}

/// The longest time that a sandbox may stay behind a server that is gone.
pub const LINGER_MS_MAX: u32 = 5_000;

impl JailPlan {
    /// Places inside where something can be written.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        let scratch = self.scratch.directories.iter().map(|(_, inside, _)| inside.as_path());
        scratch.chain(self.workspace.iter().map(|(_, inside)| inside.as_path()))
    }
}

/// A process behind a wall of its own that carries a warm interpreter, and from which sandboxes are cloned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZygotePlan {
    /// The wall that its sandboxes have in common: what they show, and where their own parts will be.
    pub wall: JailPlan,
    /// The identities that it may give them.
    pub ids: ZygoteIds,
    /// A directory of the host that holds the workspaces of sandboxes that last; none of them sees it.
    pub workspaces: Option<PathBuf>,
    /// The interpreter: program and arguments.
    pub argv: Vec<String>,
    /// Its whole environment, and that of its copies.
    pub env: Vec<(String, String)>,
}

/// A directory or file of the host to show inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether a missing source is skipped rather than an error.
    pub optional: bool,
}

impl Bind {
    /// The same place outside and inside.
    pub fn in_place(path: PathBuf, optional: bool) -> Self {
        Self { target: path.clone(), path, optional }
    }
}

/// A read-only file of the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

/// One memory file system holding everything the program may write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// Its size.
    pub bytes: u64,
    /// Files and directories it may hold.
    pub inodes: u64,
    /// Its directories: name within, where it appears inside, permission bits.
    pub directories: Vec<(String, PathBuf, u32)>,
}

/// Limits that the kernel keeps per process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimits {
    /// Processor seconds.
    pub cpu_s: u64,
    /// Length of one file.
    pub file_bytes: u64,
    /// Open files.
    pub open_files: u64,
    /// Processes of this identity in this user namespace.
    pub processes: u64,
}
