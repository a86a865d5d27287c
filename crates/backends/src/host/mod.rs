//! What walls share that run on the server's own machine: the languages of the host and the files of persistent
//! sandboxes. They differ in how they isolate.

pub mod inventory;
pub mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;

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
