//! What is in a workspace: parts of files, entries of directories, sizes, and what a run changed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::FilePath;

/// The most bytes of one read.
pub const READ_BYTES_MAX: usize = 1 << 20;
/// The most entries of a list.
pub const LIST_ENTRIES_MAX: usize = 1000;
/// The most changed files that are described.
pub const CHANGED_FILES_MAX: usize = 64;
/// Larger files get no digest.
pub const HASH_BYTES_MAX: u64 = 64 << 20;
const SET_ASIDE: [&[u8]; 2] = [b"__pycache__", b"node_modules"];

/// Whether a directory of this name is set aside: lists show it but do not enter it, and it contains no
/// artifacts.
pub fn is_set_aside(name: &[u8]) -> bool {
    name.starts_with(b".") || SET_ASIDE.contains(&name)
}

/// The limits of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, directories and all other named entries.
    pub inodes: u64,
}

/// The size of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Used {
    /// Bytes on the disk. Holes cost nothing; a file with two names counts twice.
    pub bytes: u64,
    /// All named entries.
    pub inodes: u64,
    /// Whether everything was counted. A workspace too large or too deep to count exceeds any quota.
    pub is_complete: bool,
}

/// Part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their offset in the file.
    pub offset: u64,
    /// The size of the whole file.
    pub size_bytes: u64,
    /// Whether the file ends after these bytes.
    pub at_end: bool,
    /// The media type of the file.
    pub media_type: Cow<'static, str>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The size of the whole file.
    pub size_bytes: u64,
}

/// How deep a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// The entries of the directory itself.
    Flat,
    /// All entries below it as well, except in directories that are set aside.
    Recursive,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link. No operation follows it.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

/// One entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The path relative to the workspace. Bytes that are not UTF-8 appear as `\xNN`.
    pub path: String,
    /// The kind.
    pub kind: EntryKind,
    /// Its length, for a file.
    pub size_bytes: u64,
    /// When it was last changed, in milliseconds since the epoch.
    pub modified_ms: u64,
    /// A directory that a recursive list did not enter, because of its name or its depth.
    pub is_unopened: bool,
    /// The path is not UTF-8, so the caller cannot address it. Programs inside can.
    pub is_nameless: bool,
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Whether the list is complete.
    pub is_complete: bool,
}

/// A file that was created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// The path relative to the workspace.
    pub path: FilePath,
    /// The media type, by its name and first bytes.
    pub media_type: Cow<'static, str>,
    /// Its length.
    pub size_bytes: u64,
    /// The digest of its content, in hexadecimal digits. `None` for a large file.
    pub sha256: Option<String>,
}

/// What a run did to the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The changed files, by path, at most [`CHANGED_FILES_MAX`].
    pub files: Vec<ChangedFile>,
    /// Notes for the caller about the rest.
    pub notes: Vec<String>,
    /// The size of the workspace now.
    pub used: Used,
}
