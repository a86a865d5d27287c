//! The servers that use the databases of the gate: this one joins when it first needs a name.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::store::{Servers, StoreError};

/// The folder of the locked files that tell which servers are alive.
const FOLDER: &str = "servers";

/// The servers of one state directory.
#[derive(Debug)]
pub(crate) struct Roll {
    folder: PathBuf,
    joined: OnceLock<Servers>,
}

impl Roll {
    pub(crate) fn new(gate: &Path) -> Self {
        Self { folder: gate.join(FOLDER), joined: OnceLock::new() }
    }

    /// This server among the others.
    pub(crate) fn servers(&self) -> Result<&Servers, StoreError> {
        if self.joined.get().is_none() {
            let joined = Servers::join(&self.folder).map_err(StoreError::io("join the servers"))?;
            joined.sweep();
            // Another thread may have joined first; its name is as good.
            drop(self.joined.set(joined));
        }
        self.joined.get().ok_or(StoreError::Closed)
    }
}
