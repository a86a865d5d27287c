//! Walks through a workspace that a program may have built to be endless: bounded in entries, depth and time.
//!
//! The walk keeps all directories open from its start down to the current one, each opened from its parent. If
//! the program moves or replaces a directory, only the findings change.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use sandbox::workspace::{
    Entry, EntryKind, FileError, FilePath, LIST_ENTRIES_MAX, Listing, Reach, Used, is_set_aside,
};

use super::errno::told;
use super::read::modified_ms;
use super::{Root, beneath, tracker};

/// The most names that are counted for the quota, whatever the quota is.
const USAGE_ENTRIES_MAX: u64 = 1 << 20;
/// Deeper directories are not entered, because each level holds a file descriptor.
pub(super) const DEPTH_MAX: usize = 48;
pub(super) const WALK_PATIENCE: Duration = Duration::from_secs(5);
/// The size of a block as stat(2) counts them.
const BLOCK_BYTES: u64 = 512;

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
    visit: impl FnMut(&WalkedEntry<'_>) -> Then,
) -> Result<Walked, FileError> {
    walk_entering(patience, directory, |_, _| Then::Enter, visit)
}

/// The same. `entered` is called with each open directory and its path, before the directory is read.
pub(super) fn walk_entering(
    patience: Duration,
    directory: OwnedFd,
    mut entered: impl FnMut(BorrowedFd<'_>, &[u8]) -> Then,
    mut visit: impl FnMut(&WalkedEntry<'_>) -> Then,
) -> Result<Walked, FileError> {
    let until = Instant::now() + patience;
    if entered(directory.as_fd(), b"") == Then::Stop {
        return Ok(Walked::BROKEN_OFF);
    }
    let mut open = vec![(Dir::new(directory).map_err(told)?, 0, false)];
    let (mut path, mut walked) = (Vec::new(), Walked { is_complete: true, is_complete_outside: true });
    loop {
        let depth = open.len();
        let Some((current, above, is_aside)) = open.last_mut() else { break };
        let (above, is_aside) = (*above, *is_aside);
        let Some(entry) = current.read() else {
            open.pop();
            continue;
        };
        let entry = entry.map_err(told)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if Instant::now() > until {
            return Ok(Walked::BROKEN_OFF);
        }
        let place = current.fd().map_err(told)?;
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
        let is_set_aside = is_set_aside(name);
        let (path_now, is_beneath_set_aside) = (path.as_slice(), is_aside);
        match visit(&WalkedEntry { path: path_now, kind, stat: &stat, is_set_aside, is_beneath_set_aside }) {
            Then::Stop => return Ok(Walked::BROKEN_OFF),
            Then::Enter if kind == EntryKind::Directory => {}
            Then::Enter | Then::Pass => continue,
        }
        let below = match depth < DEPTH_MAX {
            true => beneath::directory(place, Path::new(entry_name(name).map_err(told)?)),
            false => Err(Errno::NAMETOOLONG),
        };
        match below {
            Ok(below) => {
                if entered(below.as_fd(), &path) == Then::Stop {
                    return Ok(Walked::BROKEN_OFF);
                }
                let length = path.len();
                open.push((Dir::new(below).map_err(told)?, length, is_aside || is_set_aside));
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
            let stat = beneath::look(root, place).map_err(told)?;
            let entries = vec![entry(path.as_str().as_bytes(), kind_of(&stat), &stat, false)];
            return Ok(Listing { entries, is_complete: true });
        }
        (opened, _) => opened.map_err(told)?,
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
    let tracked = tracker::find(root);
    if let Some(used) = tracked.and_then(|it| it.used_within(root.quota.bytes, root.quota.inodes)) {
        return Ok(used);
    }
    let directory = beneath::directory(&root.directory, Path::new(".")).map_err(told)?;
    let most = root.entries_max();
    let mut used = Used::default();
    let walked = walk(directory, |found| {
        count(&mut used, found.stat);
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

/// Adds one name to the size.
pub(super) fn count(used: &mut Used, stat: &Stat) {
    used.inodes += 1;
    used.bytes = used.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES);
}

pub(super) fn kind_of(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}
