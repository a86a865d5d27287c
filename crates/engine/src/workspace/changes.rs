//! What a run did to the files: snapshots before and after, and what differs between them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Stat;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::walk::{EntryKind, Found, Then, Used, WALK_PATIENCE, walk_for};
use super::write::is_draft;
use super::{FileError, FilePath, OpenFile, Root, beneath, read::READ_BYTES_MAX};
use crate::handle::hex;

/// Files of a snapshot.
pub const SNAPSHOT_FILES_MAX: usize = 20_000;
/// Their paths together.
const SNAPSHOT_PATH_BYTES_MAX: usize = 4 << 20;
/// Names up to which a workspace is small, and how long such a one may take.
const SMALL_NAMES_MAX: u64 = 64;
const SMALL_PATIENCE: Duration = Duration::from_micros(500);
/// Changed files that are described.
pub const CHANGED_FILES_MAX: usize = 64;
/// A larger file gets no digest.
pub const HASH_BYTES_MAX: u64 = 64 << 20;
/// Nor do files beyond this together.
const HASH_TOGETHER_BYTES_MAX: u64 = 256 << 20;

/// What was there at one moment: regular files outside of directories that are set aside, and no drafts of ours. What
/// everything holds is found on the same way.
#[derive(Debug, Clone)]
pub struct Snapshot {
    files: HashMap<Box<[u8]>, Stamp>,
    path_bytes: usize,
    is_complete: bool,
    used: Used,
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
    /// What the workspace holds now.
    pub used: Used,
}

/// Names of changed files, and whether there may be more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    paths: Vec<FilePath>,
    nameless: usize,
    is_complete: bool,
}

impl Snapshot {
    /// Goes through everything.
    pub(super) fn take(root: &Root) -> Result<Self, FileError> {
        Self::within(WALK_PATIENCE, root, root.entries_max())
    }

    /// The same, if that is little.
    pub(super) fn take_small(root: &Root) -> Result<Option<Self>, FileError> {
        let taken = Self::within(SMALL_PATIENCE, root, SMALL_NAMES_MAX)?;
        Ok(taken.used.is_complete.then_some(taken))
    }

    fn within(patience: Duration, root: &Root, names_max: u64) -> Result<Self, FileError> {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        let mut snapshot = Self {
            files: HashMap::new(),
            path_bytes: 0,
            is_complete: true,
            used: Used::default(),
            taken: (now.tv_sec, now.tv_nsec),
        };
        let directory = beneath::directory(&root.directory, Path::new("."))?;
        let walked = walk_for(patience, directory, |found| {
            snapshot.used.count(found.stat);
            snapshot.add(found);
            if snapshot.used.inodes > names_max { Then::Stop } else { Then::Enter }
        })?;
        snapshot.used.is_complete = walked.is_complete;
        snapshot.is_complete &= walked.is_complete_outside;
        Ok(snapshot)
    }

    /// Remembers a file, if it is one that counts and there is room for it.
    fn add(&mut self, found: &Found<'_>) {
        if found.kind != EntryKind::File || found.is_beneath_set_aside || is_draft(found.path) {
            return;
        }
        let path_bytes = self.path_bytes + found.path.len();
        if self.files.len() == SNAPSHOT_FILES_MAX || path_bytes > SNAPSHOT_PATH_BYTES_MAX {
            self.is_complete = false;
            return;
        }
        self.path_bytes = path_bytes;
        self.files.insert(found.path.into(), Stamp::of(found.stat));
    }

    /// What everything held at that moment.
    pub fn used(&self) -> Used {
        self.used
    }
}

impl Changed {
    /// Whether nothing need be read to tell what changed.
    pub(super) fn is_nothing(&self) -> bool {
        self.paths.is_empty()
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
