//! Walks through a workspace that a program may have built to be endless: bounded in entries, depth and time.
//!
//! The walk keeps all directories open from its start down to the current one, each opened from its parent. If
//! the program moves or replaces a directory, only the findings change.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::read::modified_ms;
use super::{FileError, FilePath, Root, beneath};

/// The most entries of a list.
pub const LIST_ENTRIES_MAX: usize = 1000;
/// The most names that are counted for the quota, whatever the quota is.
const USAGE_ENTRIES_MAX: u64 = 1 << 20;
/// Deeper directories are not entered, because each level holds a file descriptor.
const DEPTH_MAX: usize = 48;
pub(super) const WALK_PATIENCE: Duration = Duration::from_secs(5);
/// The size of a block as stat(2) counts them.
const BLOCK_BYTES: u64 = 512;
const SET_ASIDE: [&[u8]; 2] = [b"__pycache__", b"node_modules"];

/// How deep a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The entries of the directory itself.
    Flat,
    /// All entries below it as well, except in directories that are set aside.
    Recursive,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Whether the list is complete.
    pub is_complete: bool,
}

/// The size of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Bytes on the disk. Holes cost nothing; a file with two names counts twice.
    pub bytes: u64,
    /// All named entries.
    pub inodes: u64,
    /// Whether everything was counted. A workspace too large or too deep to count exceeds any quota.
    pub is_complete: bool,
}

/// An entry that a walk found.
pub(super) struct WalkedEntry<'a> {
    /// The path from the start of the walk.
    pub(super) path: &'a [u8],
    pub(super) kind: EntryKind,
    pub(super) stat: &'a Stat,
    /// Whether its name or its depth excludes it from the walk.
    pub(super) is_set_aside: bool,
    /// Whether a directory above it is set aside.
    pub(super) is_beneath_set_aside: bool,
}

/// How far a walk came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walked {
    /// Whether it visited everything that it had to enter.
    pub(super) is_complete: bool,
    /// Whether it visited everything outside directories that are set aside.
    pub(super) is_complete_outside: bool,
}

impl Walked {
    const BROKEN_OFF: Self = Self { is_complete: false, is_complete_outside: false };
}

/// How a walk continues after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Enter it, if it is a directory.
    Enter,
    /// Skip it.
    Pass,
    /// End the walk.
    Stop,
}

/// Visits everything below a directory. Returns how far it came.
pub(super) fn walk(
    directory: OwnedFd,
    visit: impl FnMut(&WalkedEntry<'_>) -> Then,
) -> Result<Walked, FileError> {
    walk_for(WALK_PATIENCE, directory, visit)
}

/// Visits everything below a directory, within a time limit.
pub(super) fn walk_for(
    patience: Duration,
    directory: OwnedFd,
    mut visit: impl FnMut(&WalkedEntry<'_>) -> Then,
) -> Result<Walked, FileError> {
    let until = Instant::now() + patience;
    let mut open = vec![(Dir::new(directory)?, 0, false)];
    let (mut path, mut walked) = (Vec::new(), Walked { is_complete: true, is_complete_outside: true });
    loop {
        let depth = open.len();
        let Some((current, above, is_aside)) = open.last_mut() else { break };
        let (above, is_aside) = (*above, *is_aside);
        let Some(entry) = current.read() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if Instant::now() > until {
            return Ok(Walked::BROKEN_OFF);
        }
        let place = current.fd()?;
        // The entry vanished during the walk.
        let Ok(stat) = rustix::fs::statat(place, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        path.truncate(above);
        if above > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let kind = kind_of(&stat);
        let is_set_aside = name.starts_with(b".") || SET_ASIDE.contains(&name);
        let (path_now, is_beneath_set_aside) = (path.as_slice(), is_aside);
        match visit(&WalkedEntry { path: path_now, kind, stat: &stat, is_set_aside, is_beneath_set_aside }) {
            Then::Stop => return Ok(Walked::BROKEN_OFF),
            Then::Enter if kind == EntryKind::Directory => {}
            Then::Enter | Then::Pass => continue,
        }
        let below = match depth < DEPTH_MAX {
            true => beneath::directory(place, Path::new(entry_name(name)?)),
            false => Err(Errno::NAMETOOLONG),
        };
        match below {
            Ok(below) => {
                let length = path.len();
                open.push((Dir::new(below)?, length, is_aside || is_set_aside));
            }
            // The entry was replaced or removed during the walk.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => {
                walked.is_complete = false;
                walked.is_complete_outside &= is_aside || is_set_aside;
            }
        }
    }
    Ok(walked)
}

fn entry_name(name: &[u8]) -> Result<&std::ffi::OsStr, Errno> {
    use std::os::unix::ffi::OsStrExt;
    // A name with a slash cannot come from a correct file system.
    if name.contains(&b'/') { Err(Errno::IO) } else { Ok(std::ffi::OsStr::from_bytes(name)) }
}

/// Lists a directory. For a file, lists the file itself.
pub(super) fn list(root: &OwnedFd, path: Option<&FilePath>, reach: Reach) -> Result<Listing, FileError> {
    let place = path.map_or(Path::new("."), FilePath::as_path);
    let directory = match (beneath::directory(root, place), path) {
        (Err(Errno::NOTDIR), Some(path)) => {
            let stat = beneath::look(root, place)?;
            let entries = vec![entry(path.as_str().as_bytes(), kind_of(&stat), &stat, false)];
            return Ok(Listing { entries, is_complete: true });
        }
        (opened, _) => opened?,
    };
    let prefix = path.map(|path| format!("{path}/")).unwrap_or_default().into_bytes();
    let mut entries = Vec::new();
    let walked = walk(directory, |found| {
        if entries.len() == LIST_ENTRIES_MAX {
            return Then::Stop;
        }
        let is_entered = reach == Reach::Recursive && !found.is_set_aside;
        let is_unopened = reach == Reach::Recursive && !is_entered && found.kind == EntryKind::Directory;
        entries.push(entry(&[prefix.as_slice(), found.path].concat(), found.kind, found.stat, is_unopened));
        if is_entered { Then::Enter } else { Then::Pass }
    })?;
    let is_complete = walked.is_complete;
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Listing { entries, is_complete })
}

fn entry(path: &[u8], kind: EntryKind, stat: &Stat, is_unopened: bool) -> Entry {
    let (path, is_nameless) = match std::str::from_utf8(path) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (visible(path), true),
    };
    let is_file = kind == EntryKind::File;
    let size_bytes = if is_file { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
    Entry { path, kind, size_bytes, modified_ms: modified_ms(stat), is_unopened, is_nameless }
}

fn visible(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Measures a workspace. Counts no further than needed to see that the quota is exceeded.
pub(super) fn usage(root: &Root) -> Result<Used, FileError> {
    let directory = beneath::directory(&root.directory, Path::new("."))?;
    let most = root.entries_max();
    let mut used = Used::default();
    let walked = walk(directory, |found| {
        used.count(found.stat);
        if used.inodes > most { Then::Stop } else { Then::Enter }
    })?;
    used.is_complete = walked.is_complete;
    Ok(used)
}

impl Root {
    /// The most names that are counted.
    pub(super) fn entries_max(&self) -> u64 {
        self.quota.inodes.min(USAGE_ENTRIES_MAX)
    }
}

impl Used {
    /// Adds one name.
    pub(super) fn count(&mut self, stat: &Stat) {
        self.inodes += 1;
        self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES);
    }
}

fn kind_of(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}
