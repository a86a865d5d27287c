//! Files that last, in the memory of this process. They keep the contract, except that changed files have no
//! digest, and that the guest of a fake sandbox does not see them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::BoxFuture;
use crate::workspace::{
    CHANGED_FILES_MAX, ChangedFile, Changes, Entry, EntryKind, FileError, FilePart, FilePath, Held,
    LIST_ENTRIES_MAX, Listing, NotHeld, OpenFile, Pace, Quota, READ_BYTES_MAX, Reach, Snapshot, Upload, Used,
    Workspace, WorkspaceRef, WorkspaceStore, Written, is_set_aside, media_type,
};

/// When to try again while they are away.
const RETRY_MS: u64 = 50;

/// Workspaces in memory. Clones share them, as two servers share a state directory.
#[derive(Debug, Clone, Default)]
pub struct FakeWorkspaces {
    all: Arc<Mutex<HashMap<String, Kept>>>,
    is_away: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    files: Arc<Mutex<Files>>,
    is_held: Arc<AtomicBool>,
}

/// Files by path. Directories exist as parts of these paths.
#[derive(Debug, Clone, Default)]
struct Files {
    contents: BTreeMap<String, Content>,
    /// Counts changes.
    changes: u64,
}

#[derive(Debug, Clone)]
struct Content {
    bytes: Vec<u8>,
    changed: u64,
}

#[derive(Debug, Clone)]
struct FakeWorkspace {
    files: Arc<Mutex<Files>>,
    quota: Quota,
}

#[derive(Debug)]
struct FakeFile {
    path: FilePath,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct FakeUpload {
    workspace: FakeWorkspace,
    path: FilePath,
    bytes_max: u64,
    /// `None` after a failure.
    bytes: Option<Vec<u8>>,
}

#[derive(Debug)]
struct FakeSnapshot {
    files: Arc<Mutex<Files>>,
    stamps: BTreeMap<String, u64>,
    used: Used,
}

#[derive(Debug)]
struct FakeHeld(Arc<AtomicBool>);

impl Held for FakeHeld {}

impl Drop for FakeHeld {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeWorkspaces {
    /// The ids of all workspaces.
    pub fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = locked(&self.all).keys().cloned().collect();
        ids.sort();
        ids
    }

    /// Makes every workspace unreachable, as if the connection to its wall were lost, or reachable again.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Writes a file as a program inside does, without any limit.
    pub fn put(&self, id: &str, path: &FilePath, bytes: &[u8]) {
        if let Some(kept) = locked(&self.all).get(id) {
            locked(&kept.files).put(path.as_str(), bytes.to_vec());
        }
    }

    fn kept(&self, of: &WorkspaceRef) -> Result<Option<Kept>, FileError> {
        let id = of.plain_id()?;
        if self.is_away.load(Ordering::SeqCst) {
            return Err(FileError::Unavailable { retry_after_ms: RETRY_MS });
        }
        Ok(locked(&self.all).get(id).cloned())
    }

    fn hold_now(&self, of: &WorkspaceRef) -> Result<Box<dyn Held>, NotHeld> {
        let kept = self.kept(of).map_err(|error| match error {
            FileError::Unavailable { retry_after_ms } => NotHeld::Unavailable { retry_after_ms },
            error => NotHeld::Broken(error.to_string()),
        })?;
        let kept = kept.ok_or(NotHeld::Missing)?;
        match kept.is_held.swap(true, Ordering::SeqCst) {
            true => Err(NotHeld::Elsewhere),
            false => Ok(Box::new(FakeHeld(kept.is_held))),
        }
    }
}

impl WorkspaceStore for FakeWorkspaces {
    fn create<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        let created = of.plain_id().map(|id| {
            locked(&self.all).entry(id.to_owned()).or_default();
        });
        Box::pin(ready(created))
    }

    fn open<'a>(
        &'a self,
        of: &'a WorkspaceRef,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Arc<dyn Workspace>, FileError>> {
        let opened = self.kept(of).and_then(|kept| {
            let files = kept.ok_or(FileError::NotFound)?.files;
            Ok(Arc::new(FakeWorkspace { files, quota }) as Arc<dyn Workspace>)
        });
        Box::pin(ready(opened))
    }

    fn hold<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<Box<dyn Held>, NotHeld>> {
        Box::pin(ready(self.hold_now(of)))
    }

    fn remove<'a>(&'a self, of: &'a WorkspaceRef) -> BoxFuture<'a, Result<(), FileError>> {
        let removed = of.plain_id().and_then(|id| locked(&self.all).remove(id).ok_or(FileError::NotFound));
        Box::pin(ready(removed.map(drop)))
    }

    fn is_empty(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(locked(&self.all).is_empty()))
    }

    fn remove_strangers(&self, known: HashSet<String>) -> BoxFuture<'_, ()> {
        // Nothing here is old enough to be a stranger but what no server holds.
        locked(&self.all).retain(|id, kept| known.contains(id) || kept.is_held.load(Ordering::SeqCst));
        Box::pin(ready(()))
    }
}

impl Files {
    fn put(&mut self, path: &str, bytes: Vec<u8>) {
        self.changes += 1;
        self.contents.insert(path.to_owned(), Content { bytes, changed: self.changes });
    }

    fn directories(&self) -> BTreeSet<&str> {
        let above = |path: &'_ str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        self.contents.keys().flat_map(|path| above(path).into_iter().map(|at| &path[..at])).collect()
    }

    fn used(&self) -> Used {
        let bytes = self.contents.values().map(|content| content.bytes.len() as u64).sum();
        let inodes = (self.contents.len() + self.directories().len()) as u64;
        Used { bytes, inodes, is_complete: true }
    }

    fn get(&self, path: &FilePath) -> Result<&Content, FileError> {
        match self.contents.get(path.as_str()) {
            Some(content) => Ok(content),
            None if self.directories().contains(path.as_str()) => Err(FileError::IsDirectory),
            None => Err(FileError::NotFound),
        }
    }

    /// Writes a whole file, within the quota.
    fn write(&mut self, path: &FilePath, bytes: Vec<u8>, quota: Quota) -> Result<Written, FileError> {
        if self.directories().contains(path.as_str()) {
            return Err(FileError::IsDirectory);
        }
        let above = path.as_str().match_indices('/').map(|(at, _)| &path.as_str()[..at]);
        if above.into_iter().any(|above| self.contents.contains_key(above)) {
            return Err(FileError::BadPath("a file is where a directory should be".into()));
        }
        let (size_bytes, before) = (bytes.len() as u64, self.clone());
        self.put(path.as_str(), bytes);
        let used = self.used();
        if used.bytes > quota.bytes || used.inodes > quota.inodes {
            *self = before;
            return Err(FileError::DiskFull);
        }
        Ok(Written { size_bytes })
    }

    fn list(&self, path: Option<&FilePath>, reach: Reach) -> Result<Listing, FileError> {
        let directories = self.directories();
        let is_directory = path.is_none_or(|path| directories.contains(path.as_str()));
        if let Some(path) = path.filter(|_| !is_directory) {
            let entry = entry(path.as_str(), Some(self.get(path)?), false);
            return Ok(Listing { entries: vec![entry], is_complete: true });
        }
        let prefix = path.map(|path| format!("{path}/")).unwrap_or_default();
        let all = directories.iter().map(|path| (*path, None));
        let all = all.chain(self.contents.iter().map(|(path, content)| (path.as_str(), Some(content))));
        let mut entries = Vec::new();
        for (path, content) in all {
            let Some(below) = path.strip_prefix(&prefix) else { continue };
            let mut names = below.split('/').rev();
            let name = names.next().unwrap_or_default();
            let is_listed = match reach {
                Reach::Flat => names.next().is_none(),
                Reach::Recursive => !names.any(|above| is_set_aside(above.as_bytes())),
            };
            let is_unopened = reach == Reach::Recursive && content.is_none() && is_set_aside(name.as_bytes());
            entries.extend(is_listed.then(|| entry(path, content, is_unopened)));
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        let is_complete = entries.len() <= LIST_ENTRIES_MAX;
        entries.truncate(LIST_ENTRIES_MAX);
        Ok(Listing { entries, is_complete })
    }

    fn changed_since(&self, stamps: &BTreeMap<String, u64>) -> Changes {
        let is_aside = |path: &str| {
            let above = path.rsplit_once('/').map(|(above, _)| above);
            above.is_some_and(|above| above.split('/').any(|name| is_set_aside(name.as_bytes())))
        };
        let changed = self.contents.iter().filter(|(path, content)| {
            stamps.get(*path).is_none_or(|stamp| *stamp != content.changed) && !is_aside(path)
        });
        let describe = |(path, content): (&String, &Content)| {
            let (path, size_bytes) = (FilePath::parse(path).ok()?, content.bytes.len() as u64);
            let media_type = media_type(path.name(), &content.bytes).into();
            Some(ChangedFile { path, media_type, size_bytes, sha256: None })
        };
        let mut files: Vec<ChangedFile> = changed.filter_map(describe).collect();
        let more = files.len().saturating_sub(CHANGED_FILES_MAX);
        files.truncate(CHANGED_FILES_MAX);
        let note = (more > 0).then(|| format!("{more} more files were made or changed"));
        Changes { files, notes: note.into_iter().collect(), used: self.used() }
    }
}

fn entry(path: &str, content: Option<&Content>, is_unopened: bool) -> Entry {
    Entry {
        path: path.to_owned(),
        kind: if content.is_some() { EntryKind::File } else { EntryKind::Directory },
        size_bytes: content.map_or(0, |content| content.bytes.len() as u64),
        modified_ms: 0,
        is_unopened,
        is_nameless: false,
    }
}

impl FakeWorkspace {
    fn open(&self, path: &FilePath) -> Result<FakeFile, FileError> {
        let bytes = locked(&self.files).get(path)?.bytes.clone();
        Ok(FakeFile { path: path.clone(), bytes })
    }

    fn write_now(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        locked(&self.files).write(path, content, self.quota)
    }

    fn append_now(&self, path: &FilePath, content: Vec<u8>) -> Result<Written, FileError> {
        let mut files = locked(&self.files);
        let there = match files.get(path) {
            Ok(content) => content.bytes.clone(),
            Err(FileError::NotFound) => Vec::new(),
            Err(error) => return Err(error),
        };
        files.write(path, [there, content].concat(), self.quota)
    }
}

impl Workspace for FakeWorkspace {
    fn quota(&self) -> Quota {
        self.quota
    }

    fn file<'a>(&'a self, path: &'a FilePath) -> BoxFuture<'a, Result<Box<dyn OpenFile>, FileError>> {
        Box::pin(ready(self.open(path).map(|file| Box::new(file) as Box<dyn OpenFile>)))
    }

    fn read<'a>(
        &'a self,
        path: &'a FilePath,
        offset: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<FilePart, FileError>> {
        Box::pin(ready(self.open(path).map(|file| file.part(offset, limit))))
    }

    fn write<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(ready(self.write_now(path, content)))
    }

    fn append<'a>(
        &'a self,
        path: &'a FilePath,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<Written, FileError>> {
        Box::pin(ready(self.append_now(path, content)))
    }

    fn upload<'a>(
        &'a self,
        path: &'a FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, FileError>> {
        let (workspace, path) = (self.clone(), path.clone());
        let upload = FakeUpload { workspace, path, bytes_max, bytes: Some(Vec::new()) };
        let begun = match announced.unwrap_or(0) > bytes_max {
            true => Err(FileError::TooLarge { bytes_max }),
            false => Ok(Box::new(upload) as Box<dyn Upload>),
        };
        Box::pin(ready(begun))
    }

    fn list<'a>(
        &'a self,
        path: Option<&'a FilePath>,
        reach: Reach,
    ) -> BoxFuture<'a, Result<Listing, FileError>> {
        Box::pin(ready(locked(&self.files).list(path, reach)))
    }

    fn usage(&self) -> BoxFuture<'_, Result<Used, FileError>> {
        Box::pin(ready(Ok(locked(&self.files).used())))
    }

    fn remove_abandoned_drafts(&self) -> BoxFuture<'_, Result<usize, FileError>> {
        Box::pin(ready(Ok(0)))
    }

    fn snapshot(&self, _: Pace) -> BoxFuture<'_, Result<Box<dyn Snapshot>, FileError>> {
        let now = locked(&self.files);
        let stamps = now.contents.iter().map(|(path, content)| (path.clone(), content.changed)).collect();
        let snapshot = FakeSnapshot { files: Arc::clone(&self.files), stamps, used: now.used() };
        Box::pin(ready(Ok(Box::new(snapshot) as Box<dyn Snapshot>)))
    }

    fn holds_any<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, bool> {
        let files = locked(&self.files);
        let directories = files.directories();
        let is_there = |name: &String| {
            !name.contains('/') && (files.contents.contains_key(name) || directories.contains(name.as_str()))
        };
        Box::pin(ready(names.iter().any(is_there)))
    }

    fn tidy<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, ()> {
        let mut files = locked(&self.files);
        for name in names.iter().filter(|name| !name.contains('/')) {
            files.contents.remove(name);
        }
        Box::pin(ready(()))
    }

    fn open_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

impl FakeFile {
    fn part(&self, offset: u64, limit: usize) -> FilePart {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let until = from.saturating_add(limit.min(READ_BYTES_MAX)).min(self.bytes.len());
        FilePart {
            bytes: self.bytes[from..until].to_vec(),
            offset,
            size_bytes: self.bytes.len() as u64,
            at_end: until == self.bytes.len(),
            media_type: media_type(self.path.name(), &self.bytes).into(),
        }
    }
}

impl OpenFile for FakeFile {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn modified_ms(&self) -> u64 {
        0
    }

    fn media_type(&self) -> &str {
        media_type(self.path.name(), &self.bytes)
    }

    fn read(&self, offset: u64, limit: usize) -> BoxFuture<'_, Result<FilePart, FileError>> {
        Box::pin(ready(Ok(self.part(offset, limit))))
    }
}

impl FakeUpload {
    fn write_now(&mut self, piece: &[u8]) -> Result<(), FileError> {
        let mut bytes = self.bytes.take().ok_or(FileError::Disturbed)?;
        bytes.extend_from_slice(piece);
        if bytes.len() as u64 > self.bytes_max {
            return Err(FileError::TooLarge { bytes_max: self.bytes_max });
        }
        let used = locked(&self.workspace.files).used().bytes;
        if used.saturating_add(bytes.len() as u64) > self.workspace.quota.bytes {
            return Err(FileError::DiskFull);
        }
        self.bytes = Some(bytes);
        Ok(())
    }
}

impl Upload for FakeUpload {
    fn write(&mut self, piece: Vec<u8>) -> BoxFuture<'_, Result<(), FileError>> {
        Box::pin(ready(self.write_now(&piece)))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Written, FileError>> {
        let Self { workspace, path, bytes, .. } = *self;
        let placed = bytes.ok_or(FileError::Disturbed).and_then(|bytes| workspace.write_now(&path, bytes));
        Box::pin(ready(placed))
    }
}

impl Snapshot for FakeSnapshot {
    fn used(&self) -> Used {
        self.used
    }

    fn changes(self: Box<Self>, _: Pace) -> BoxFuture<'static, Result<Changes, FileError>> {
        let changes = locked(&self.files).changed_since(&self.stamps);
        Box::pin(ready(Ok(changes)))
    }
}
