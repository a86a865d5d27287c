//! Access from the host to the files of a persistent sandbox, while a hostile program works in the same
//! directory.
//!
//! ```text
//! FilePath (plain names only) -> beneath (openat2 from the workspace's descriptor) -> regular file? -> read, write, list
//! ```
//! No operation uses a path of the host. Every step starts at the file descriptor of the workspace, and at each
//! step the kernel refuses links, `..` and other file systems, even if the program swaps names concurrently.
//! Only regular files are opened, and never with a blocking open. Every walk is bounded in entries, depth and
//! time, so that nothing that a program builds there costs the host more than that.
//!
//! Some directories are *set aside*: their name begins with a dot, or is `__pycache__` or `node_modules`. Lists
//! show them but do not enter them unless the caller names them, and they contain no artifacts, because caches
//! and repositories would hide the program's own files. They count for the quota like everything else.

mod beneath;
mod changes;
mod errno;
mod read;
mod told;
mod walk;
mod write;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use sandbox::BoxFuture;
use tokio::sync::Semaphore;

pub use changes::{SNAPSHOT_FILES_MAX, Snapshot};
pub use read::OpenFile;
pub use sandbox::workspace::{
    CHANGED_FILES_MAX, ChangedFile, Changes, Entry, EntryKind, FILE_PATH_BYTES_MAX, FileError, FilePart,
    FilePath, HASH_BYTES_MAX, LIST_ENTRIES_MAX, Listing, Pace, Quota, READ_BYTES_MAX, Reach, Used, Written,
    is_image, media_type,
};
pub use write::Upload;

use crate::Caller;
use crate::result::RunError;

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

/// Finds the workspace of a sandbox for its owner. The workspace of another principal is answered like one that
/// never existed.
pub trait Workspaces: Send + Sync {
    /// Returns `None` when this caller has no such sandbox, or it is closed.
    fn workspace<'a>(
        &'a self,
        caller: &'a Caller,
        sandbox_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Workspace>, RunError>>;
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
pub struct Workspace {
    root: Arc<Root>,
}

#[derive(Debug)]
struct Root {
    directory: OwnedFd,
    quota: Quota,
    /// `None` means the user of this process.
    owner: Option<Owner>,
}

impl Workspace {
    /// Creates a workspace over an open directory.
    pub fn new(directory: OwnedFd, quota: Quota, owner: Option<Owner>) -> Self {
        Self { root: Arc::new(Root { directory, quota, owner }) }
    }

    /// Opens a workspace by its path, which other users must not be able to change. A link is not followed.
    pub fn open(path: &Path, quota: Quota, owner: Option<Owner>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self::new(directory, quota, owner))
    }

    /// Its limits.
    pub fn quota(&self) -> Quota {
        self.root.quota
    }

    /// Opens a regular file, to be read in parts.
    pub async fn file(&self, path: &FilePath) -> Result<OpenFile, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Quick, move || OpenFile::open(&root.directory, &path)).await
    }

    /// Reads a part of a file: at most [`READ_BYTES_MAX`] bytes from `offset`.
    pub async fn read(&self, path: &FilePath, offset: u64, limit: usize) -> Result<FilePart, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Quick, move || OpenFile::open(&root.directory, &path)?.part(offset, limit)).await
    }

    /// Writes a whole file. A reader sees the old file or the new one, never a partial one.
    pub async fn write(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || write::whole(&root, &path, &content)).await
    }

    /// Appends to a file. Creates it if it does not exist.
    pub async fn append(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || write::append(&root, &path, &content)).await
    }

    /// Begins to write a file piece by piece, of at most `bytes_max` bytes, of which `announced` are expected.
    pub async fn upload(
        &self,
        path: &FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> Result<Upload, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || Upload::begin(root, &path, bytes_max, announced)).await
    }

    /// Lists a directory, or the workspace itself for `None`, with at most [`LIST_ENTRIES_MAX`] entries.
    pub async fn list(&self, path: Option<&FilePath>, reach: Reach) -> Result<Listing, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.cloned());
        blocking(Work::Walk, move || walk::list(&root.directory, path.as_ref(), reach)).await
    }

    /// Measures the workspace.
    pub async fn usage(&self) -> Result<Used, FileError> {
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || walk::usage(&root)).await
    }

    /// Removes the drafts of a server that was killed during a write. Call it before any new write.
    pub async fn remove_abandoned_drafts(&self) -> Result<usize, FileError> {
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || write::remove_abandoned(&root)).await
    }

    /// Takes a snapshot, to find out later what changed.
    pub async fn snapshot(&self, pace: Pace) -> Result<Snapshot, FileError> {
        if pace == Pace::AtOnce
            && let Some(snapshot) = Snapshot::take_small(&self.root)?
        {
            return Ok(snapshot);
        }
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || Snapshot::take(&root)).await
    }

    /// Describes the files that were created or changed since the snapshot, at most [`CHANGED_FILES_MAX`].
    pub async fn changes_since(&self, before: Snapshot, pace: Pace) -> Result<Changes, FileError> {
        if pace == Pace::AtOnce
            && let Some(after) = Snapshot::take_small(&self.root)?
        {
            let changed = changes::between(&before, &after);
            if changed.is_nothing() {
                // Without changes this reads nothing.
                let described = changes::describe(&self.root.directory, &changed);
                return Ok(Changes { used: after.used(), ..described });
            }
        }
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || {
            let after = Snapshot::take(&root)?;
            let described = changes::describe(&root.directory, &changes::between(&before, &after));
            Ok(Changes { used: after.used(), ..described })
        })
        .await
    }
}

/// Executes an operation that may wait for the disk on a blocking thread. A started operation completes even if
/// no caller waits for it any more; every operation is bounded.
async fn blocking<T: Send + 'static>(
    kind: Work,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let walk = match kind {
        Work::Walk => Some(WALKS.acquire().await.map_err(closed)?),
        Work::Quick => None,
    };
    let permit = OPERATIONS.acquire().await.map_err(closed)?;
    let worked = tokio::task::spawn_blocking(move || {
        let worked = work();
        drop((walk, permit));
        worked
    });
    worked.await.map_err(closed)?
}

fn closed(error: impl std::fmt::Display) -> FileError {
    FileError::Failed(error.to_string())
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;
