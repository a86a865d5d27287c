//! What a run did to the files: snapshots before and after, and what differs between them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Stat;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::walk::{EntryKind, Then, walk};
use super::write::is_draft;
use super::{FileError, FilePath, OpenFile, beneath, read::READ_BYTES_MAX};
use crate::handle::hex;

/// Files of a snapshot.
pub const SNAPSHOT_FILES_MAX: usize = 20_000;
/// Their paths together.
const SNAPSHOT_PATH_BYTES_MAX: usize = 4 << 20;
/// Changed files that are described.
pub const CHANGED_FILES_MAX: usize = 64;
/// A larger file gets no digest.
pub const HASH_BYTES_MAX: u64 = 64 << 20;
/// Nor do files beyond this together.
const HASH_TOGETHER_BYTES_MAX: u64 = 256 << 20;

/// What was there at one moment: regular files outside of directories that are set aside, and no drafts of ours.
#[derive(Debug, Clone)]
pub struct Snapshot {
    files: HashMap<Box<[u8]>, Stamp>,
    is_complete: bool,
    /// By the clock that stamps files.
    taken: (i64, i64),
}

/// A file that was not touched keeps all of this; the program cannot set `changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file that was made or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Relative to the workspace.
    pub path: FilePath,
    /// What it is, by its name and its first bytes.
    pub media_type: Cow<'static, str>,
    /// Its length.
    pub size_bytes: u64,
    /// Of its content, in hexadecimal digits; nothing for a large one.
    pub sha256: Option<String>,
}

/// What a run did to the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// By path.
    pub files: Vec<ChangedFile>,
    /// What should be known about the rest.
    pub notes: Vec<String>,
}

/// Names of changed files, and whether there may be more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    paths: Vec<FilePath>,
    nameless: usize,
    is_complete: bool,
}

impl Snapshot {
    pub(super) fn take(root: &OwnedFd) -> Result<Self, FileError> {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        let (mut files, mut path_bytes) = (HashMap::new(), 0);
        let directory = beneath::directory(root, Path::new("."))?;
        let is_complete = walk(directory, |found| {
            match found.kind {
                EntryKind::File if is_draft(found.path) => return Then::Pass,
                EntryKind::File => {}
                EntryKind::Directory if found.is_set_aside => return Then::Pass,
                EntryKind::Directory => return Then::Enter,
                EntryKind::Link | EntryKind::Other => return Then::Pass,
            }
            path_bytes += found.path.len();
            if files.len() == SNAPSHOT_FILES_MAX || path_bytes > SNAPSHOT_PATH_BYTES_MAX {
                return Then::Stop;
            }
            files.insert(found.path.into(), Stamp::of(found.stat));
            Then::Pass
        })?;
        Ok(Self { files, is_complete, taken: (now.tv_sec, now.tv_nsec) })
    }
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// What is new or different. Where not everything was seen before, the time of the last change decides.
pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Changed {
    let is_changed = |path: &[u8], stamp: &Stamp| match before.files.get(path) {
        Some(earlier) => earlier != stamp,
        None => before.is_complete || stamp.changed >= before.taken,
    };
    let mut changed = Changed { is_complete: after.is_complete, ..Changed::default() };
    for (path, _) in after.files.iter().filter(|(path, stamp)| is_changed(path, stamp)) {
        match std::str::from_utf8(path).ok().and_then(|text| FilePath::parse(text).ok()) {
            Some(path) => changed.paths.push(path),
            None => changed.nameless += 1,
        }
    }
    changed.paths.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    changed
}

/// Reads what is needed to say what the files are.
pub(super) fn describe(root: &OwnedFd, changed: &Changed) -> Changes {
    let mut changes = Changes::default();
    let (mut hashed, mut unhashed) = (0_u64, 0_usize);
    for path in changed.paths.iter().take(CHANGED_FILES_MAX) {
        // A file that cannot be opened any more is none to hand out.
        let Ok(file) = OpenFile::open(root, path) else { continue };
        let (size_bytes, media_type) = (file.size_bytes(), Cow::Borrowed(file.media_type()));
        let is_hashed = size_bytes <= HASH_BYTES_MAX && hashed + size_bytes <= HASH_TOGETHER_BYTES_MAX;
        let sha256 = if is_hashed { digest(&file) } else { None };
        hashed += if is_hashed { size_bytes } else { 0 };
        unhashed += usize::from(sha256.is_none());
        changes.files.push(ChangedFile { path: path.clone(), media_type, size_bytes, sha256 });
    }
    let more = changed.paths.len().saturating_sub(CHANGED_FILES_MAX);
    let notes = [
        (more > 0).then(|| format!("{more} more files were made or changed; list_files shows them")),
        (!changed.is_complete).then(|| "the workspace is too large to find every changed file".to_owned()),
        (changed.nameless > 0)
            .then(|| format!("{} changed files have names that are not text", changed.nameless)),
        (unhashed > 0).then(|| format!("{unhashed} large or changing files have no sha256")),
    ];
    changes.notes = notes.into_iter().flatten().collect();
    changes
}

/// Nothing when the file became another while it was read.
fn digest(file: &OpenFile) -> Option<String> {
    let (mut hash, mut offset) = (Sha256::new(), 0);
    while offset < file.size_bytes() {
        let part = file.part(offset, READ_BYTES_MAX).ok()?;
        if part.bytes.is_empty() {
            return None;
        }
        offset += part.bytes.len() as u64;
        hash.update(&part.bytes);
    }
    Some(hex(&hash.finalize()))
}
