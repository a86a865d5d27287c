//! One sandbox with a workspace, for tests of the modules above it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use backends::host::workspace::HostWorkspace;
use engine::workspace::{Quota, Workspace, Workspaces};
use engine::{Caller, Principal, RunError};
use sandbox::BoxFuture;

use harness::TestFolder;

/// Id of the open sandbox.
pub(crate) const SANDBOX: &str = "sbx_0123456789abcdef0123456789abcdef";

/// A workspace that belongs to [`Principal::local`].
pub(crate) struct TestWorkspaces {
    folder: TestFolder,
    workspace: Mutex<Option<Arc<dyn Workspace>>>,
}

impl TestWorkspaces {
    pub(crate) fn new() -> Self {
        Self::with(Quota { bytes: 1 << 30, inodes: 1000 })
    }

    pub(crate) fn with(quota: Quota) -> Self {
        let folder = TestFolder::new();
        let workspace = HostWorkspace::open(folder.path(), quota, None).unwrap();
        Self { folder, workspace: Mutex::new(Some(Arc::new(workspace))) }
    }

    pub(crate) fn close(&self) {
        self.workspace.lock().unwrap().take();
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.folder.file(path, content)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.path().join(path)).ok()
    }

    pub(crate) fn names(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }
}

impl Workspaces for TestWorkspaces {
    fn workspace<'a>(
        &'a self,
        caller: &'a Caller,
        sandbox_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Workspace>>, RunError>> {
        let is_it = caller.principal == Principal::local() && sandbox_id == SANDBOX;
        let found = is_it.then(|| self.workspace.lock().unwrap().clone()).flatten();
        Box::pin(async { Ok(found) })
    }
}
