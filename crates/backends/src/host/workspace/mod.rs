//! Workspaces in folders of the host, and access to their files while a hostile program works in the same
//! directory.
//!
//! ```text
//! FilePath (plain names only) -> beneath (openat2 from the workspace's descriptor) -> regular file? -> read, write, list
//! ```
//! No operation on a file uses a path of the host. Every step starts at the file descriptor of the workspace,
//! and at each step the kernel refuses links, `..` and other file systems, even if the program swaps names
//! concurrently. Only regular files are opened, and never with a blocking open. Every walk is bounded in
//! entries, depth and time, so that nothing that a program builds there costs the host more than that.

mod beneath;
mod changes;
mod errno;
mod read;
mod removal;
mod store;
pub(crate) mod tracker;
mod tree;
mod walk;
mod write;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use sandbox::BoxFuture;
use sandbox::workspace::{
    FileError, FilePart, FilePath, Listing, OpenFile, Pace, Quota, Reach, Snapshot, TreeBounds, TreeSink,
    Upload, Used, Workspace, Written,
};
use tokio::sync::Semaphore;

pub use store::HostWorkspaces;

use self::changes::HostSnapshot;
use self::errno::told;
use self::read::HostFile;
use self::write::HostUpload;

/// The most operations that block a thread at once, in all workspaces together.
const OPERATIONS_MAX: usize = 16;
/// How many of these may be walks through a whole workspace, so that a huge workspace does not delay reads of
/// single files.
const WALKS_MAX: usize = 4;

static OPERATIONS: Semaphore = Semaphore::const_new(OPERATIONS_MAX);
static WALKS: Semaphore = Semaphore::const_new(WALKS_MAX);

/// How long an operation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A few system calls.
    Quick,
    /// A walk through the workspace.
    Walk,
}

/// The owner of files written from outside, so that the program inside may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user id on the host.
    pub uid: u32,
    /// The group id on the host.
    pub gid: u32,
}

/// The directory of one sandbox. Cheap to clone; it stays open while any clone exists.
#[derive(Debug, Clone)]
pub struct HostWorkspace {
    root: Arc<Root>,
}

#[derive(Debug)]
struct Root {
    directory: OwnedFd,
    quota: Quota,
    /// `None` means the user of this process.
    owner: Option<Owner>,
}

impl HostWorkspace {
    /// Opens a workspace by its path, which other users must not be able to change. A link is not followed.
    pub fn open(path: &Path, quota: Quota, owner: Option<Owner>) -> Result<Self, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {
                // A server that is not root cannot read a directory whose permissions its program removed, but
                // has the same identity and may restore them.
                beneath::open_up(path).map_err(told)?;
                rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(told)?
            }
            opened => opened.map_err(told)?,
        };
        Ok(Self { root: Arc::new(Root { directory, quota, owner }) })
    }

    /// Removes one entry of the workspace itself. Whatever the program put in its place is unlinked, not
    /// followed.
    fn unlink(&self, name: &str) -> Result<(), Errno> {
        if name.contains('/') {
            return Err(Errno::INVAL);
        }
        match rustix::fs::unlinkat(&self.root.directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            unlinked => unlinked,
        }
    }
}

impl Workspace for HostWorkspace {
    fn quota(&self) -> Quota {
        self.root.quota
    }

    fn file<'a>(&'a self, path: &'a FilePath) -> BoxFuture<'a, Result<Box<dyn OpenFile>, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        Box::pin(async move {
            let file = blocking(Work::Quick, move || HostFile::open(&root.directory, &path)).await?;
            Ok(Box::new(file) as Box<dyn OpenFile>)
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a FilePath,
        offset: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<FilePart, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        let part = move || HostFile::open(&root.directory, &path)?.part(offset, limit);
        Box::pin(blocking(Work::Quick, part))
    }

    fn write<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        Box::pin(blocking(Work::Walk, move || write::whole(&root, &path, &content)))
    }

    fn append<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        Box::pin(blocking(Work::Walk, move || write::append(&root, &path, &content)))
    }

    fn upload<'a>(
        &'a self,
        path: &'a FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        Box::pin(async move {
            let begin = move || HostUpload::begin(root, &path, bytes_max, announced);
            Ok(Box::new(blocking(Work::Walk, begin).await?) as Box<dyn Upload>)
        })
    }

    fn list<'a>(
        &'a self,
        path: Option<&'a FilePath>,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Listing, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.cloned());
        Box::pin(blocking(Work::Walk, move || walk::list(&root.directory, path.as_ref(), reach)))
    }

    fn usage(&self) -> BoxFuture<'_, Result<Used, FileError>> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(Work::Walk, move || walk::usage(&root)))
    }

    fn remove_abandoned_drafts(&self) -> BoxFuture<'_, Result<usize, FileError>> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(Work::Walk, move || write::remove_abandoned(&root)))
    }

    fn snapshot(&self, pace: Pace) -> BoxFuture<'_, Result<Box<dyn Snapshot>, FileError>> {
        Box::pin(async move {
            if pace == Pace::AtOnce
                && let Some(snapshot) = HostSnapshot::take_small(&self.root)?
            {
                return Ok(Box::new(snapshot) as Box<dyn Snapshot>);
            }
            let root = Arc::clone(&self.root);
            blocking(Work::Walk, move || changes::take(&root)).await
        })
    }

    fn holds_any<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, bool> {
        let is_there = |name: &String| {
            !name.contains('/')
                && rustix::fs::statat(&self.root.directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        Box::pin(std::future::ready(names.iter().any(is_there)))
    }

    fn tidy<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, ()> {
        for name in names {
            if let Err(error) = self.unlink(name) {
                tracing::debug!(reason = %error, "own_file_not_removed");
            }
        }
        Box::pin(std::future::ready(()))
    }

    fn tree<'a>(
        &'a self,
        path: &'a FilePath,
        bounds: TreeBounds,
        sink: Box<dyn TreeSink>,
    ) -> BoxFuture<'a, Result<Box<dyn TreeSink>, FileError>> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        Box::pin(blocking(Work::Walk, move || tree::read(&root.directory, &path, bounds, sink)))
    }

    fn open_up(&self) -> BoxFuture<'_, ()> {
        // If the repair fails, the run that needs the directory reports it.
        if let Err(error) = beneath::open_up_directory(&self.root.directory) {
            tracing::debug!(reason = %error, "workspace_not_opened_up");
        }
        Box::pin(std::future::ready(()))
    }
}

/// Executes an operation that may wait for the disk on a blocking thread. A started operation completes even if
/// no caller waits for it any more; every operation is bounded.
async fn blocking<T: Send + 'static>(
    kind: Work,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let walk = match kind {
        Work::Walk => Some(WALKS.acquire().await.map_err(ended)?),
        Work::Quick => None,
    };
    let permit = OPERATIONS.acquire().await.map_err(ended)?;
    let worked = tokio::task::spawn_blocking(move || {
        let worked = work();
        drop((walk, permit));
        worked
    });
    worked.await.map_err(ended)?
}

/// The operation did not come to an end.
fn ended(error: impl std::fmt::Display) -> FileError {
    FileError::Failed(error.to_string())
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
