//! The workspace of a persistent sandbox, as a local wall shows it: a directory of the host that belongs to the sandbox's
//! identity.

use std::path::PathBuf;

use ::sandbox::{BackendError, SandboxSpec};

use super::workspace::HostWorkspaces;

/// The directory that a sandbox shows as its workspace, if its files last.
pub(crate) fn workspace_of(
    workspaces: Option<&HostWorkspaces>,
    spec: &SandboxSpec,
) -> Result<Option<PathBuf>, BackendError> {
    let Some(of) = &spec.workspace else { return Ok(None) };
    let unsupported = |what: String| BackendError::Unsupported {
        what,
        remedy: "give the server a state directory on a disk".to_owned(),
    };
    let workspaces = workspaces.ok_or_else(|| unsupported("it has no files that last".to_owned()))?;
    workspaces.path(of).map(Some).map_err(|error| unsupported(error.to_string()))
}
