//! What the native backend asks the jail to build. Plain data, decided entirely by the server.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{IdMap, ZygoteIds};

/// Everything needed to build one jail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailPlan {
    /// Which identity the sandbox has on the host.
    pub id_map: IdMap,
    /// Directory in the unified hierarchy into which the process is cloned.
    pub unified_cgroup: Option<PathBuf>,
    /// Whether the host will send `tasks` files of version 1 hierarchies to join (see [`crate::send_groups`]).
    pub joins_groups: bool,
    /// Parts of the host that appear inside, read-only, in the order given.
    pub binds: Vec<Bind>,
    /// Symbolic links in the new root: path and target.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// Files made in the new root.
    pub files: Vec<PlanFile>,
    /// Directories made in the new root, at which layers can be attached later.
    pub directories: Vec<PathBuf>,
    /// Directories and files of the operator that appear inside at their own paths, outer ones first.
    pub folders: Vec<PlanFolder>,
    /// A directory of the host that is the workspace, writable: its path on the host, and its path inside.
    pub workspace: Option<(PathBuf, PathBuf)>,
    /// The writable space.
    pub scratch: Scratch,
    /// Limits of each process.
    pub rlimits: Rlimits,
    /// Whether a control group counts memory. If not, the filter refuses calls whose memory no process's
    /// figures show.
    pub memory_counted: bool,
    /// Host name inside.
    pub hostname: String,
    /// How long process 1 stays after its stream has ended, unless the server kills it. All other processes
    /// inside are killed at once. At most [`LINGER_MS_MAX`].
    pub linger_ms: u32,
}

/// The longest time that a sandbox may outlive its server.
pub const LINGER_MS_MAX: u32 = 5_000;

impl JailPlan {
    /// Paths inside that are writable.
    pub fn writable(&self) -> impl Iterator<Item = &Path> {
        let scratch = self.scratch.directories.iter().map(|(_, inside, _)| inside.as_path());
        let folders = self.folders.iter().filter(|folder| folder.is_writable);
        scratch
            .chain(self.workspace.iter().map(|(_, inside)| inside.as_path()))
            .chain(folders.map(|folder| folder.path.as_path()))
    }

    /// Whether programs can write to a disk of the host.
    pub fn writes_to_disk(&self) -> bool {
        self.workspace.is_some() || self.folders.iter().any(|folder| folder.is_writable)
    }
}

/// A process behind its own walls that carries a warm interpreter, and from which sandboxes are cloned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZygotePlan {
    /// The jail that its sandboxes have in common: what they show, and where their own parts are attached.
    pub wall: JailPlan,
    /// The identities that it may give to its sandboxes.
    pub ids: ZygoteIds,
    /// A directory of the host that holds the workspaces of persistent sandboxes. No sandbox sees it.
    pub workspaces: Option<PathBuf>,
    /// The interpreter: program and arguments.
    pub argv: Vec<String>,
    /// Its complete environment, which its copies inherit.
    pub env: Vec<(String, String)>,
}

/// A directory or file of the host to show inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether a missing source is skipped instead of being an error.
    pub optional: bool,
}

impl Bind {
    /// A bind with the same path outside and inside.
    pub fn in_place(path: PathBuf, optional: bool) -> Self {
        Self { target: path.clone(), path, optional }
    }
}

/// A directory or file of the operator to show inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFolder {
    /// Absolute path, on the host and inside. No part of it is a symbolic link.
    pub path: PathBuf,
    /// Whether it can be written.
    pub is_writable: bool,
}

/// The most of them in one plan.
pub const FOLDERS_MAX: usize = 32;

/// A read-only file of the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Absolute path inside.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

/// One memory file system that holds everything the program may write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// Its size.
    pub bytes: u64,
    /// Files and directories it may hold.
    pub inodes: u64,
    /// Its directories: name within, path inside, permission bits.
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
    /// Stack of a process's first thread. A program may raise it for itself.
    pub stack_bytes: u64,
}
