//! The workspace of a persistent sandbox, as a local wall shows it: a directory of the host that belongs to the sandbox's
//! identity.

use std::path::{Path, PathBuf};

use ::sandbox::{BackendError, SandboxSpec};
use jail::IdMap;

use super::Local;
use super::workspace::HostWorkspaces;
use crate::native::at;

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

/// The refusal of containers to show directories of the operator.
pub(crate) fn refuse_folders(spec: &SandboxSpec) -> Result<(), BackendError> {
    if spec.folders.is_empty() {
        return Ok(());
    }
    Err(BackendError::Unsupported {
        what: "a container shows no directories of the operator".to_owned(),
        remedy: "use the native wall for it".to_owned(),
    })
}

impl Local {
    /// The identity on the host of a container: a persistent sandbox has always the same, which owns its files.
    pub(crate) fn identity(
        &self,
        spec: &SandboxSpec,
        workspace: Option<&Path>,
        number: u64,
    ) -> Result<IdMap, BackendError> {
        let Some((of, path)) = spec.workspace.as_ref().zip(workspace) else {
            return Ok(self.identities.next(number));
        };
        let adopted = self.workspaces.as_ref().map_or(Ok(()), |all| all.adopt(of, path));
        adopted.map_err(at("workspace"))?;
        Ok(self.identities.lasting(of.identity))
    }
}
