//! The files of persistent sandboxes: the traits that a wall with lasting files implements, and their types.
//!
//! A [`WorkspaceStore`] has the workspaces of one wall, by id. The engine creates one before the record of a
//! sandbox exists, holds it while the sandbox is in use, and removes it when the sandbox is closed. Paths,
//! users and file descriptors of the machine that has the files do not appear here, because a wall may keep
//! them on another machine.
//!
//! A hostile program works in the same directory. Every implementation must keep these rules:
//!
//! - No operation leaves the workspace, follows a link, or opens anything but regular files and directories,
//!   even if the program replaces names concurrently.
//! - Every operation is bounded in bytes, entries, depth and time, whatever the program built there.
//! - Files written from outside belong to the program's user and count for the quota.
//! - A file being written is not visible under its name before it is complete, and is not an artifact.
//!
//! Some directories are *set aside*: their name begins with a dot, or is `__pycache__` or `node_modules`. Lists
//! show them but do not enter them unless the caller names them, and they contain no artifacts, because caches
//! and repositories would hide the program's own files. They count for the quota like everything else.

mod error;
mod listing;
mod media;
mod path;
mod tree;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;

pub use error::FileError;
pub use listing::{
    CHANGED_FILES_MAX, ChangedFile, Changes, Entry, EntryKind, FilePart, HASH_BYTES_MAX, LIST_ENTRIES_MAX,
    Listing, Quota, READ_BYTES_MAX, Reach, Used, Written, is_set_aside,
};
pub use media::{HEAD_BYTES, is_image, media_type};
pub use path::{FILE_PATH_BYTES_MAX, FilePath};
pub use tree::{TreeBounds, TreeEntry, TreeKind, TreeSink};

/// Names a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRef {
    /// The id of its sandbox: one plain name of letters, digits, `_` and `-`. A store refuses any other.
    pub id: String,
    /// Selects the identity that owns its files. It is the same for every sandbox that shows this workspace.
    pub identity: u32,
}

impl WorkspaceRef {
    /// The longest id.
    pub const ID_BYTES_MAX: usize = 64;

    /// The id, if it is one plain name, so that it can be the name of a directory or a volume.
    pub fn plain_id(&self) -> Result<&str, FileError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_fit = (1..=Self::ID_BYTES_MAX).contains(&self.id.len());
        match is_fit && self.id.bytes().all(is_plain) {
            true => Ok(&self.id),
            false => Err(FileError::BadPath("the id of the workspace is not a plain name".into())),
        }
    }
}

/// Where a walk through a workspace executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// In the calling task, if it takes only a few system calls: handing it to another thread and back costs
    /// more. For a workspace that was small a moment ago, so that nothing must be read from a disk.
    AtOnce,
    /// On a thread that may block.
    Aside,
}

/// Why a workspace cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotHeld {
    /// Another server uses it.
    #[error("another server uses the workspace")]
    Elsewhere,
    /// The workspace does not exist.
    #[error("the workspace does not exist")]
    Missing,
    /// The wall that has the files cannot be reached now, but may be later.
    #[error("the workspace cannot be reached at present")]
    Unavailable {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// An internal failure, with the operating system's reason.
    #[error("the workspace cannot be held: {0}")]
    Broken(String),
}

/// The right of one server to use a workspace. Dropping it releases the workspace; so does the end of the
/// process that has it.
pub trait Held: Send + Sync + Debug {}

/// The workspaces of a wall.
pub trait WorkspaceStore: Send + Sync {
    /// Creates an empty workspace. One that exists already stays as it is.
    fn create<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>>;

    /// Opens a workspace from outside. This is on the path of every run, so it must be cheap.
    fn open<'a>(
        &'a self,
        of: &'a WorkspaceRef,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Arc<dyn Workspace>, FileError>>;

    /// Takes exclusive use of a workspace among all servers that share this store.
    fn hold<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<Box<dyn Held>, NotHeld>>;

    /// Removes a workspace. Afterwards nothing can open it. The files vanish in the background, and failures
    /// are reported to [`crate::Backend::failures`] as well as logged.
    fn remove<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>>;

    /// Whether the store certainly has no workspace, so that [`WorkspaceStore::remove_strangers`] would find
    /// nothing. A store that does not know returns `false`.
    fn is_empty(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Removes every workspace whose id is not in `known`, in the background. A workspace exists before its
    /// record, so recent ones are kept, and so are those that a server holds.
    fn remove_strangers(&self, known: HashSet<String>) -> BoxFuture<'_, ()>;
}

/// Access from outside to the files of one sandbox. It stays valid while the files exist.
pub trait Workspace: Send + Sync + Debug {
    /// Its limits.
    fn quota(&self) -> Quota;

    /// Opens a regular file, to be read in parts.
    fn file<'a>(&'a self, path: &'a FilePath) -> BoxFuture<'a, Result<Box<dyn OpenFile>, FileError>>;

    /// Reads a part of a file: at most [`READ_BYTES_MAX`] bytes from `offset`.
    fn read<'a>(
        &'a self,
        path: &'a FilePath,
        offset: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<FilePart, FileError>>;

    /// Writes a whole file, with the directories above it. A reader sees the old file or the new one, never a
    /// partial one.
    fn write<'a>(&'a self, path: &'a FilePath, content: Vec<u8>)
    -> BoxFuture<'a, Result<Written, FileError>>;

    /// Appends to a file in place. Creates it if it does not exist.
    fn append<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>>;

    /// Begins to write a file piece by piece, of at most `bytes_max` bytes, of which `announced` are expected.
    fn upload<'a>(
        &'a self,
        path: &'a FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, FileError>>;

    /// Lists a directory, or the workspace itself for `None`, with at most [`LIST_ENTRIES_MAX`] entries.
    fn list<'a>(
        &'a self,
        path: Option<&'a FilePath>,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Listing, FileError>>;

    /// Measures the workspace.
    fn usage(&self) -> BoxFuture<'_, Result<Used, FileError>>;

    /// Removes the drafts of servers that were killed during a write. Drafts that are being written stay.
    fn remove_abandoned_drafts(&self) -> BoxFuture<'_, Result<usize, FileError>>;

    /// Takes a snapshot, to find out later what changed.
    fn snapshot(&self, pace: Pace) -> BoxFuture<'_, Result<Box<dyn Snapshot>, FileError>>;

    /// Whether the workspace itself, not a directory below it, has an entry of any kind with one of these
    /// names.
    fn holds_any<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, bool>;

    /// Unlinks the entries of these names from the workspace itself, not from a directory below it. Directories
    /// stay. Names that do not exist are skipped.
    fn tidy<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, ()>;

    /// Reads a whole directory out, including what is set aside. Gives the sink back if everything was read. The
    /// program must have ended, because a tree that changes may be read in parts of several states.
    fn tree<'a>(
        &'a self,
        path: &'a FilePath,
        bounds: TreeBounds,
        sink: Box<dyn TreeSink>,
    ) -> BoxFuture<'a, Result<Box<dyn TreeSink>, FileError>> {
        drop((path, bounds, sink));
        Box::pin(std::future::ready(Err(FileError::Failed("this wall reads no whole trees".to_owned()))))
    }

    /// Makes the directory of the workspace accessible to its owner again. A program may have removed the
    /// permissions.
    fn open_up(&self) -> BoxFuture<'_, ()>;
}

/// An open regular file. Later changes of its name have no effect.
pub trait OpenFile: Send + Sync + Debug {
    /// The size when the file was opened.
    fn size_bytes(&self) -> u64;

    /// When it was last changed, in milliseconds since the epoch.
    fn modified_ms(&self) -> u64;

    /// The media type, by its name and first bytes.
    fn media_type(&self) -> &str;

    /// Reads at most [`READ_BYTES_MAX`] bytes from `offset`.
    fn read(&self, offset: u64, limit: usize) -> BoxFuture<'_, Result<FilePart, FileError>>;
}

/// A file that arrives piece by piece. If it is dropped before its end, or a piece fails, it leaves nothing
/// behind.
pub trait Upload: Send + Debug {
    /// Appends a piece. After a failure every further call fails.
    fn write(&mut self, piece: Vec<u8>) -> BoxFuture<'_, Result<(), FileError>>;

    /// Gives the file its name.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Written, FileError>>;
}

/// The regular files of a workspace at one moment, except those in directories that are set aside.
pub trait Snapshot: Send + Sync + Debug {
    /// The size of the whole workspace at that moment.
    fn used(&self) -> Used;

    /// Describes the files that were created or changed since, at most [`CHANGED_FILES_MAX`].
    fn changes(self: Box<Self>, pace: Pace) -> BoxFuture<'static, Result<Changes, FileError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_workspace_is_one_plain_name() {
        let of = |id: &str| WorkspaceRef { id: id.to_owned(), identity: 1 };
        assert_eq!(of("sbx_0123-abc").plain_id(), Ok("sbx_0123-abc"));
        for bad in ["", ".", "..", "a/b", "/a", "a.removed", "a\0", "ä", &"x".repeat(65)] {
            assert_eq!(of(bad).plain_id().map_err(|error| error.code()), Err("bad_path"), "{bad}");
        }
    }
}
