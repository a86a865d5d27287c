//! The files of persistent sandboxes, as callers reach them. The wall of a sandbox has the files; the types and
//! traits are those of [`sandbox::workspace`].

mod told;

use std::sync::Arc;

use sandbox::BoxFuture;
pub use sandbox::workspace::{
    CHANGED_FILES_MAX, ChangedFile, Changes, Entry, EntryKind, FILE_PATH_BYTES_MAX, FileError, FilePart,
    FilePath, HASH_BYTES_MAX, LIST_ENTRIES_MAX, Listing, OpenFile, Pace, Quota, READ_BYTES_MAX, Reach,
    Snapshot, Upload, Used, Workspace, Written, is_image, media_type,
};

use crate::Caller;
use crate::result::RunError;

/// Finds the workspace of a sandbox for its owner. The workspace of another principal is answered like one that
/// never existed.
pub trait Workspaces: Send + Sync {
    /// Returns `None` when this caller has no such sandbox, or it is closed.
    fn workspace<'a>(
        &'a self,
        caller: &'a Caller,
        sandbox_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Workspace>>, RunError>>;
}
