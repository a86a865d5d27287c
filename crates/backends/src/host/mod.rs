//! What walls share that run on the server's own machine: the languages of the host and the files of persistent
//! sandboxes. They differ in how they isolate.

pub(crate) mod home;
pub mod inventory;
mod lasting;
pub mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jail::Spawner;

use self::workspace::HostWorkspaces;
use crate::native::cgroup::Cgroups;
use crate::native::deaths::Deaths;
use crate::native::identity::Identities;
use crate::native::plan::System;

pub(crate) use self::lasting::{refuse_folders, workspace_of};

/// The parts of the host that a local wall is given.
#[derive(Debug, Clone, Default)]
pub struct HostParts {
    /// The directory that holds the server's state.
    pub state_dir: PathBuf,
    /// Interpreters by language. They replace the interpreters found on the PATH.
    pub interpreters: BTreeMap<String, PathBuf>,
    /// Prefix for a probe's command line, so that the probe ends with this process. It may be empty.
    pub launcher: Vec<String>,
    /// The path of this executable. Some runtimes start it again inside the sandbox to parse programs there.
    pub executable: Option<PathBuf>,
}

/// What all walls of one server share: control groups below the server's own, identities on the host, the parts of the
/// system that every sandbox shows, and the turns in which sandboxes end.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) cgroups: Arc<Cgroups>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) system: System,
    pub(crate) made: Arc<AtomicU64>,
    pub(crate) deaths: Arc<Deaths>,
    /// The files of persistent sandboxes; `None` where the server has no state directory.
    pub(crate) workspaces: Option<Arc<HostWorkspaces>>,
    /// The process that attaches layers to existing sandboxes.
    pub(crate) spawner: Arc<Spawner>,
}
