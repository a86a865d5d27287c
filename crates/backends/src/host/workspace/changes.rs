//! What a run did to the files: snapshots before and after, and the differences between them.
//!
//! Snapshots and descriptions are bounded. The notes of [`Changes`] say what was left out.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Stat;
use rustix::time::ClockId;
use sandbox::BoxFuture;
use sandbox::workspace::{
    CHANGED_FILES_MAX, ChangedFile, Changes, EntryKind, FileError, FilePath, HASH_BYTES_MAX, OpenFile, Pace,
    READ_BYTES_MAX, Snapshot, Used,
};
use sha2::{Digest, Sha256};

use super::errno::told;
use super::read::HostFile;
use super::tracker::{self, TrackedSnapshot};
use super::walk::{Then, WALK_PATIENCE, WalkedEntry, count, walk_for};
use super::write::is_draft;
use super::{Root, Work, beneath, blocking};

/// The most files in a snapshot.
const SNAPSHOT_FILES_MAX: usize = 20_000;
/// The most bytes of their paths together.
const SNAPSHOT_PATH_BYTES_MAX: usize = 4 << 20;
/// The most names in a small workspace. The next constant is how long walking through it may take.
const SMALL_NAMES_MAX: u64 = 64;
const SMALL_PATIENCE: Duration = Duration::from_micros(500);
/// A workspace with so many names is tracked. Below, a walk costs less than inspecting the processes inside.
pub(super) const TRACKED_NAMES_MIN: u64 = 512;
/// The most bytes hashed in all files together.
const HASH_TOGETHER_BYTES_MAX: u64 = 256 << 20;

/// The regular files at one moment, except those in directories that are set aside, and except the host's
/// drafts. The same walk measures the whole workspace.
#[derive(Debug)]
pub(super) struct HostSnapshot {
    root: Arc<Root>,
    files: HashMap<Box<[u8]>, Stamp>,
    path_bytes: usize,
    is_complete: bool,
    used: Used,
    /// When it was taken, by the clock that the kernel uses for file timestamps.
    taken: (i64, i64),
}

/// The metadata that stays the same for an untouched file. The program cannot set `changed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Names of changed files, and whether there may be more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    paths: Vec<FilePath>,
    nameless: usize,
    is_complete: bool,
}

impl HostSnapshot {
    /// Takes a snapshot of the whole workspace.
    pub(super) fn take(root: &Arc<Root>) -> Result<Self, FileError> {
        Self::within(WALK_PATIENCE, root, root.entries_max())
    }

    /// Takes a snapshot if the workspace is small.
    pub(super) fn take_small(root: &Arc<Root>) -> Result<Option<Self>, FileError> {
        let taken = Self::within(SMALL_PATIENCE, root, SMALL_NAMES_MAX)?;
        Ok(taken.used.is_complete.then_some(taken))
    }

    /// The time by the clock that the kernel uses for file timestamps.
    pub(super) fn now() -> (i64, i64) {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec, now.tv_nsec)
    }

    /// An earlier snapshot, from what is known of it. Without files, only the time of the last change decides.
    pub(super) fn known(
        root: &Arc<Root>,
        files: Option<Vec<(Box<[u8]>, Stamp)>>,
        used: Used,
        taken: (i64, i64),
    ) -> Self {
        let is_complete = files.is_some();
        let files = files.into_iter().flatten().collect();
        Self { root: Arc::clone(root), files, path_bytes: 0, is_complete, used, taken }
    }

    /// Walks through the workspace and describes what changed. A large workspace is tracked from then on.
    pub(super) fn compared(&self) -> Result<Changes, FileError> {
        let after = Self::take(&self.root)?;
        if after.used.is_complete && after.used.inodes >= TRACKED_NAMES_MIN {
            let root = Arc::clone(&self.root);
            track_later(root);
        }
        Ok(self.described(&between(self, &after), &after))
    }

    fn within(patience: Duration, root: &Arc<Root>, names_max: u64) -> Result<Self, FileError> {
        let mut snapshot = Self {
            root: Arc::clone(root),
            files: HashMap::new(),
            path_bytes: 0,
            is_complete: true,
            used: Used::default(),
            taken: Self::now(),
        };
        let directory = beneath::directory(&root.directory, Path::new(".")).map_err(told)?;
        let walked = walk_for(patience, directory, |found| {
            count(&mut snapshot.used, found.stat);
            snapshot.add(found);
            if snapshot.used.inodes > names_max { Then::Stop } else { Then::Enter }
        })?;
        snapshot.used.is_complete = walked.is_complete;
        snapshot.is_complete &= walked.is_complete_outside;
        Ok(snapshot)
    }

    /// Adds a file, if it is relevant and there is room for it.
    fn add(&mut self, found: &WalkedEntry<'_>) {
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

    fn described(&self, changed: &Changed, after: &Self) -> Changes {
        Changes { used: after.used, ..changed.described(&self.root.directory) }
    }
}

impl Snapshot for HostSnapshot {
    fn used(&self) -> Used {
        self.used
    }

    fn changes(self: Box<Self>, pace: Pace) -> BoxFuture<'static, Result<Changes, FileError>> {
        Box::pin(async move {
            if pace == Pace::AtOnce
                && let Some(after) = Self::take_small(&self.root)?
            {
                let changed = between(&self, &after);
                if changed.is_nothing() {
                    // Without changes this reads nothing.
                    return Ok(self.described(&changed, &after));
                }
            }
            blocking(Work::Walk, move || self.compared()).await
        })
    }
}

impl Changed {
    /// The changed files with these paths.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a [u8]>, is_complete: bool) -> Self {
        let mut changed = Self { is_complete, ..Self::default() };
        for path in paths {
            match std::str::from_utf8(path).ok().and_then(|text| FilePath::parse(text).ok()) {
                Some(path) => changed.paths.push(path),
                None => changed.nameless += 1,
            }
        }
        changed.paths.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        changed
    }

    /// Reads the files as far as needed to describe them.
    pub(super) fn described(&self, root: &OwnedFd) -> Changes {
        describe(root, self)
    }

    /// Whether describing the changes needs no read.
    fn is_nothing(&self) -> bool {
        self.paths.is_empty()
    }
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// Takes a snapshot of a workspace: a mark if it is tracked, else by a walk.
pub(super) fn take(root: &Arc<Root>) -> Result<Box<dyn Snapshot>, FileError> {
    let tracked = tracker::find(root).and_then(|tracked| TrackedSnapshot::take(tracked).ok());
    match tracked {
        Some(snapshot) => Ok(Box::new(snapshot)),
        None => Ok(Box::new(HostSnapshot::take(root)?)),
    }
}

/// Begins to track a workspace while no caller waits for it.
fn track_later(root: Arc<Root>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(blocking(Work::Walk, move || {
        tracker::track(&root);
        Ok(())
    }));
}

/// Returns the new and changed files. If the first snapshot is incomplete, the time of the last change decides.
fn between(before: &HostSnapshot, after: &HostSnapshot) -> Changed {
    let is_changed = |path: &[u8], stamp: &Stamp| match before.files.get(path) {
        Some(earlier) => earlier != stamp,
        None => before.is_complete || stamp.changed >= before.taken,
    };
    let changed = after.files.iter().filter(|(path, stamp)| is_changed(path, stamp));
    Changed::new(changed.map(|(path, _)| &**path), after.is_complete)
}

/// Reads the files as far as needed to describe them.
fn describe(root: &OwnedFd, changed: &Changed) -> Changes {
    let mut changes = Changes::default();
    let (mut hashed, mut unhashed) = (0_u64, 0_usize);
    for path in changed.paths.iter().take(CHANGED_FILES_MAX) {
        // A file that can no longer be opened is not reported.
        let Ok(file) = HostFile::open(root, path) else { continue };
        let (size_bytes, media_type) = (file.size_bytes(), file.known_media_type().into());
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

/// Returns `None` when the file changed while it was read.
fn digest(file: &HostFile) -> Option<String> {
    let (mut hash, mut offset) = (Sha256::new(), 0);
    while offset < file.size_bytes() {
        let part = file.part(offset, READ_BYTES_MAX).ok()?;
        if part.bytes.is_empty() {
            return None;
        }
        offset += part.bytes.len() as u64;
        hash.update(&part.bytes);
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
