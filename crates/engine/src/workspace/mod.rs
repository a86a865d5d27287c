//! The files of a long-lived sandbox, from the host, while the enemy inside works in the same directory.
//!
//! ```text
//! FilePath (plain names only) -> beneath (openat2 from the workspace's descriptor) -> regular file? -> read, write, list
//! ```
//! Nothing is reached by a path of the host: every step starts at the descriptor of the workspace, and the
//! kernel refuses links, `..` and other file systems at each of them, however names are swapped meanwhile.
//! Only regular files are opened, never blocking. Every walk has a most of entries, of depth and of time, so
//! that nothing that a program can build there costs the host more than that.
//!
//! Directories that are *set aside* (their name begins with a dot, or is `__pycache__` or `node_modules`) are
//! shown in lists but not entered unless asked for by name, and hold no artifacts: caches and repositories
//! would bury what the program made. They count for the quota like everything else.

mod beneath;
mod changes;
mod error;
mod media;
mod path;
mod read;
mod walk;
mod write;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use sandbox::BoxFuture;
use tokio::sync::Semaphore;

pub use changes::{CHANGED_FILES_MAX, ChangedFile, Changes, HASH_BYTES_MAX, SNAPSHOT_FILES_MAX, Snapshot};
pub use error::FileError;
pub use media::{is_image, media_type};
pub use path::{FILE_PATH_BYTES_MAX, FilePath};
pub use read::{FilePart, OpenFile, READ_BYTES_MAX};
pub use walk::{Entry, EntryKind, LIST_ENTRIES_MAX, Listing, Reach, Used};
pub use write::{Upload, Written};

use crate::principal::Principal;
use crate::result::RunError;

/// Operations that block a thread at once, in all workspaces together.
const OPERATIONS_MAX: usize = 16;
/// Of which so many go through a whole workspace, so that a huge one does not hold up who only reads a file.
const WALKS_MAX: usize = 4;

static OPERATIONS: Semaphore = Semaphore::const_new(OPERATIONS_MAX);
static WALKS: Semaphore = Semaphore::const_new(WALKS_MAX);

/// Where a walk is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// By whoever asks, if it turns out to be a few system calls: handing it to another thread and back costs more. For
    /// a workspace that was small a moment ago, so that nothing need be fetched from a disk.
    AtOnce,
    /// On a thread that may wait.
    Aside,
}

/// How long an operation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Some system calls.
    Quick,
    /// A walk through the workspace.
    Walk,
}

/// Finds the workspace of a sandbox for its owner; anybody else's is answered like one that never was.
pub trait Workspaces: Send + Sync {
    /// Nothing when there is no such sandbox of this principal, or it is closed.
    fn workspace<'a>(
        &'a self,
        principal: &'a Principal,
        sandbox_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Workspace>, RunError>>;
}

/// What a workspace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, directories and everything else that has a name.
    pub inodes: u64,
}

/// To whom files written from outside must belong, so that the program inside may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user as the host knows it.
    pub uid: u32,
    /// The group as the host knows it.
    pub gid: u32,
}

/// The directory of one sandbox. Cheap to clone; lives as long as anybody holds it.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: Arc<Root>,
}

#[derive(Debug)]
struct Root {
    directory: OwnedFd,
    quota: Quota,
    /// Nothing: whoever this process is.
    owner: Option<Owner>,
}

impl Workspace {
    /// A workspace over an open directory.
    pub fn new(directory: OwnedFd, quota: Quota, owner: Option<Owner>) -> Self {
        Self { root: Arc::new(Root { directory, quota, owner }) }
    }

    /// The same by its path, which must not be within anybody else's reach. A link is not followed.
    pub fn open(path: &Path, quota: Quota, owner: Option<Owner>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self::new(directory, quota, owner))
    }

    /// What it may hold.
    pub fn quota(&self) -> Quota {
        self.root.quota
    }

    /// A regular file, to be read in parts.
    pub async fn file(&self, path: &FilePath) -> Result<OpenFile, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Quick, move || OpenFile::open(&root.directory, &path)).await
    }

    /// Part of a file: at most [`READ_BYTES_MAX`] bytes from `offset`.
    pub async fn read(&self, path: &FilePath, offset: u64, limit: usize) -> Result<FilePart, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Quick, move || OpenFile::open(&root.directory, &path)?.part(offset, limit)).await
    }

    /// Writes a whole file: a reader sees the old one or the new one, never half of it.
    pub async fn write(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || write::whole(&root, &path, &content)).await
    }

    /// Adds to the end of a file, which is made if it is not there.
    pub async fn append(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || write::append(&root, &path, &content)).await
    }

    /// Begins to write a file of at most `bytes_max`, of which `announced` are expected, piece by piece.
    pub async fn upload(
        &self,
        path: &FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> Result<Upload, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.clone());
        blocking(Work::Walk, move || Upload::begin(root, &path, bytes_max, announced)).await
    }

    /// What is in a directory (nothing: the workspace itself), at most [`LIST_ENTRIES_MAX`] entries.
    pub async fn list(&self, path: Option<&FilePath>, reach: Reach) -> Result<Listing, FileError> {
        let (root, path) = (Arc::clone(&self.root), path.cloned());
        blocking(Work::Walk, move || walk::list(&root.directory, path.as_ref(), reach)).await
    }

    /// What the workspace holds now.
    pub async fn usage(&self) -> Result<Used, FileError> {
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || walk::usage(&root)).await
    }

    /// Removes what a server left that was killed while it wrote: call it before anybody writes again.
    pub async fn remove_abandoned_drafts(&self) -> Result<usize, FileError> {
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || write::remove_abandoned(&root)).await
    }

    /// What is there now, to find out later what changed.
    pub async fn snapshot(&self, pace: Pace) -> Result<Snapshot, FileError> {
        if pace == Pace::AtOnce
            && let Some(snapshot) = Snapshot::take_small(&self.root)?
        {
            return Ok(snapshot);
        }
        let root = Arc::clone(&self.root);
        blocking(Work::Walk, move || Snapshot::take(&root)).await
    }

    /// Files that were made or changed since then, with what they are; at most [`CHANGED_FILES_MAX`].
    pub async fn changes_since(&self, before: Snapshot, pace: Pace) -> Result<Changes, FileError> {
        if pace == Pace::AtOnce
            && let Some(after) = Snapshot::take_small(&self.root)?
        {
            let changed = changes::between(&before, &after);
            if changed.is_nothing() {
                // Nothing is read for these words.
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

/// Runs what may wait for the disk on a thread that may. What was begun ends by itself when nobody waits for it
/// any more: all of it is bounded.
async fn blocking<T: Send + 'static>(
    kind: Work,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let walk = match kind {
        Work::Walk => Some(WALKS.acquire().await.map_err(io::Error::other)?),
        Work::Quick => None,
    };
    let permit = OPERATIONS.acquire().await.map_err(io::Error::other)?;
    let worked = tokio::task::spawn_blocking(move || {
        let worked = work();
        drop((walk, permit));
        worked
    });
    worked.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;
