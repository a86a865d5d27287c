//! Follows the changes of large workspaces, so that a run does not examine every file.
//!
//! ```text
//! events (watches) -> names to examine -> stat -> index (entries, size, what changed since the mark)
//! ```
//! The server watches every directory of a workspace with inotify(7), and lists each directory after its watch
//! exists. A look then examines only the names that the kernel reported. Three kinds of files are examined at
//! every look, because they change without an event: those that a process of the sandbox has open for writing
//! or mapped (a mapping is written without a system call), those with several names, and those that a link
//! created.
//!
//! Any [`Doubt`] ends the tracking: a full event queue, more directories than may be watched, a directory that
//! cannot be read, a process that cannot be inspected. The next look then walks, as it does for small
//! workspaces. A tracker never decides that a limit is exceeded; `native::disk` walks to confirm that, and
//! whenever the free space of the device shows blocks that the index does not explain.

mod index;
mod registry;
mod snapshot;
mod watches;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use sandbox::workspace::{EntryKind, Used};

use self::index::{Index, Name};
use self::registry::Place;
use self::watches::{Touched, Watches, joined};
use super::changes::Stamp;
use super::walk::{DEPTH_MAX, Then, WALK_PATIENCE, kind_of, walk_entering};
use super::{Root, beneath};

#[cfg(test)]
pub(crate) use self::registry::track_at;
pub(crate) use self::registry::{OpenFiles, Tenancy, find_at, move_in};
pub(super) use self::registry::{find, forget, track};
pub(super) use self::snapshot::TrackedSnapshot;

/// The most entries of a tracked workspace, with those that a run removed.
const ENTRIES_MAX: usize = 1 << 16;
/// The most files that are examined at every look.
const UNSTEADY_MAX: usize = 1024;
/// Beyond this part of a limit, the index is not trusted to say that there is room: seven eighths.
const NEARLY: (u64, u64) = (7, 8);

/// A walk may find so many bytes more or less than the index: a program writes while both are determined.
const TOLERANCE_BYTES: u64 = 1 << 20;

/// Why a workspace cannot be tracked any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The kernel lost events.
    Overflow,
    /// More entries, directories or unsteady files than a tracker follows.
    TooMany,
    /// A directory or entry cannot be examined.
    Unreadable,
    /// The kernel grants no watch.
    NoWatch,
    /// What the processes inside have open cannot be determined.
    Processes,
    /// The workspace holds more than the index knows.
    Hidden,
    /// An earlier look had a doubt.
    Ended,
}

/// A workspace whose changes are followed.
#[derive(Debug)]
pub(crate) struct Tracked {
    place: Place,
    state: Mutex<State>,
    /// Entries examined, all listings and looks together.
    examined: AtomicU64,
}

#[derive(Debug)]
struct State {
    root: Arc<Root>,
    watches: Option<Watches>,
    index: Index,
    /// The number of the current mark.
    mark: u64,
    /// Free space of the device plus what the workspace held, when both were last known to agree.
    sum_bytes: Option<u64>,
}

impl Tracked {
    /// Lists the workspace and begins to follow its changes.
    fn begin(root: &Arc<Root>, place: Place) -> Result<Self, Doubt> {
        let tracked = Self {
            place,
            state: Mutex::new(State {
                root: Arc::clone(root),
                watches: Some(Watches::new()?),
                index: Index::default(),
                mark: 0,
                sum_bytes: None,
            }),
            examined: AtomicU64::new(0),
        };
        {
            let mut state = tracked.state();
            let examined = state.list(&Name::default())?;
            tracked.examined.fetch_add(examined, Ordering::Relaxed);
            state.look(&[], &mut 0)?;
            state.index.mark();
            let free = rustix::fs::fstatvfs(&root.directory).map_err(|_| Doubt::Unreadable)?;
            let free = free.f_bavail.saturating_mul(free.f_frsize);
            state.sum_bytes = Some(free.saturating_add(state.index.used().bytes));
        }
        Ok(tracked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the workspace now. `known`: what the processes of that tenancy have open, if the caller has
    /// just inspected them.
    pub(crate) fn used(&self, known: Option<(&Tenancy, &OpenFiles)>) -> Result<Used, Doubt> {
        self.looked(known).map(|state| state.index.used())
    }

    /// The same if it is certainly below these limits.
    pub(crate) fn used_within(&self, bytes_max: u64, inodes_max: u64) -> Option<Used> {
        let used = self.used(None).ok()?;
        is_within(&used, bytes_max, inodes_max).then_some(used)
    }

    /// Compares the free space of the device with what it was. Returns how many bytes are missing that neither the
    /// index nor files without a name (both in `held_bytes`) explain.
    pub(crate) fn unexplained_bytes(&self, held_bytes: u64, free_bytes: u64) -> u64 {
        let mut state = self.state();
        let sum = free_bytes.saturating_add(held_bytes);
        // Space that other programs release must not cover what this sandbox takes later.
        let before = state.sum_bytes.unwrap_or(sum).max(sum);
        state.sum_bytes = Some(before);
        before - sum
    }

    /// A walk found these bytes and inodes, after the index had that size. If the index agrees, the device is
    /// compared anew. If it does not, although nothing changed meanwhile, the tracking ends.
    pub(crate) fn confirm(&self, before: &Used, (bytes, inodes): (u64, u64), free_bytes: u64) {
        let Ok(mut state) = self.looked(None) else { return };
        let known = state.index.used();
        if known == *before && (bytes, inodes) != (known.bytes, known.inodes) {
            self.end(&mut state, Doubt::Hidden);
        } else if bytes.abs_diff(known.bytes) <= TOLERANCE_BYTES {
            state.sum_bytes = Some(free_bytes.saturating_add(known.bytes));
        }
    }

    /// Brings the index up to date.
    fn looked(&self, known: Option<(&Tenancy, &OpenFiles)>) -> Result<MutexGuard<'_, State>, Doubt> {
        let mut state = self.state();
        let open = registry::open_files(&self.place, known);
        let looked = self.look(&mut state, &open).and_then(|missing| {
            if missing.is_empty() {
                return Ok(());
            }
            // A file that was removed meanwhile is not open any more at the second look.
            let open = registry::open_files(&self.place, None);
            let still = self.look(&mut state, &open)?;
            if still.is_disjoint(&missing) { Ok(()) } else { Err(Doubt::Hidden) }
        });
        match looked {
            Ok(()) => Ok(state),
            Err(doubt) => {
                self.end(&mut state, doubt);
                Err(doubt)
            }
        }
    }

    fn look(&self, state: &mut State, open: &[OpenFiles]) -> Result<BTreeSet<u64>, Doubt> {
        let mut examined = 0;
        let looked = state.look(open, &mut examined);
        self.examined.fetch_add(examined, Ordering::Relaxed);
        looked
    }

    /// Ends the tracking. What the index knows stays, for snapshots that were taken.
    fn end(&self, state: &mut State, doubt: Doubt) {
        if state.watches.take().is_some() {
            tracing::debug!(reason = ?doubt, "workspace_tracking_ended");
            registry::withdraw(&self.place);
        }
    }

    /// Entries examined since the tracking began.
    #[cfg(test)]
    pub(super) fn examined(&self) -> u64 {
        self.examined.load(Ordering::Relaxed)
    }
}

/// Whether a size is so far below the limits that an index that is slightly wrong does not matter.
pub(crate) fn is_within(used: &Used, bytes_max: u64, inodes_max: u64) -> bool {
    let part = |most: u64| most / NEARLY.1 * NEARLY.0;
    used.bytes < part(bytes_max) && used.inodes < part(inodes_max)
}

impl State {
    /// Examines what may have changed. Counts the examined entries. Returns the open files that have no name.
    fn look(&mut self, open: &[OpenFiles], examined: &mut u64) -> Result<BTreeSet<u64>, Doubt> {
        let watches = self.watches.as_mut().ok_or(Doubt::Ended)?;
        let mut touched = watches.drain()?;
        if open.iter().any(|files| !files.is_certain) {
            return Err(Doubt::Processes);
        }
        let writable: BTreeSet<u64> = open.iter().flat_map(|files| files.writable.iter().copied()).collect();
        let mapped = open.iter().flat_map(|files| files.mapped.iter().copied());
        let open: BTreeSet<u64> = writable.iter().copied().chain(mapped).collect();
        touched.entries.extend(self.index.paths_of(&open).0);
        touched.entries.extend(self.index.unsteady().iter().cloned());
        self.apply(&touched, examined)?;
        let linked = self.index.take_linked();
        for path in self.index.paths_of(&linked).0 {
            *examined += self.examine(&path)?;
        }
        self.index.take_linked();
        let is_too_large = self.index.len() > ENTRIES_MAX || self.index.unsteady().len() > UNSTEADY_MAX;
        if is_too_large { Err(Doubt::TooMany) } else { Ok(self.index.paths_of(&writable).1) }
    }

    fn apply(&mut self, touched: &Touched, examined: &mut u64) -> Result<(), Doubt> {
        let mut listed: HashSet<Name> = HashSet::new();
        for path in &touched.closed {
            // A file with several names is found again below.
            self.index.set_unsteady(path, false);
        }
        for path in &touched.directories {
            if !is_beneath_any(path, &listed) {
                self.index.remove(path);
                *examined += self.examine(path)?;
                listed.insert(path.clone());
            }
        }
        for path in &touched.entries {
            if !listed.contains(path) && !is_beneath_any(path, &listed) {
                *examined += self.examine(path)?;
            }
        }
        for path in touched.created.difference(&touched.closed) {
            let is_file = self.index.has_file(path);
            self.index.set_unsteady(path, is_file);
        }
        Ok(())
    }

    /// Examines one entry. Returns how many were examined.
    fn examine(&mut self, path: &Name) -> Result<u64, Doubt> {
        match beneath::look(&self.root.directory, as_path(path)) {
            Ok(stat) => {
                let is_new_directory =
                    kind_of(&stat) == EntryKind::Directory && !self.index.has_directory(path, stat.st_ino);
                if is_new_directory {
                    self.index.remove(path);
                    return self.list(path);
                }
                if kind_of(&stat) != EntryKind::Directory {
                    // Whatever was beneath it is gone.
                    self.index.remove_beneath(path);
                }
                self.index.put(path, &stat);
                Ok(1)
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.index.remove(path);
                Ok(1)
            }
            Err(_) => Err(Doubt::Unreadable),
        }
    }

    /// Lists a directory that is not in the index, with everything beneath, and watches all of it. Returns how
    /// many entries were examined.
    fn list(&mut self, path: &Name) -> Result<u64, Doubt> {
        let Self { root, watches, index, .. } = self;
        let watches = watches.as_mut().ok_or(Doubt::Ended)?;
        let place = if path.is_empty() { Path::new(".") } else { as_path(path) };
        let directory = match beneath::directory(&root.directory, place) {
            Ok(directory) => directory,
            // Gone or replaced since it was examined, which has an event of its own.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(1),
            Err(_) => return Err(Doubt::Unreadable),
        };
        if !path.is_empty() {
            index.put(path, &rustix::fs::fstat(directory.as_fd()).map_err(|_| Doubt::Unreadable)?);
        }
        let (mut doubt, mut examined) = (None, 1);
        let above = if path.is_empty() { 0 } else { depth_of(path) };
        let entered =
            |directory: BorrowedFd<'_>, inner: &[u8]| match watches.add(directory, joined(path, inner)) {
                Ok(()) => Then::Enter,
                Err(error) => {
                    doubt = Some(error);
                    Then::Stop
                }
            };
        let walked = walk_entering(WALK_PATIENCE, directory, entered, |found| {
            examined += 1;
            index.put(&joined(path, found.path), found.stat);
            let is_too_much = index.len() > ENTRIES_MAX || above + depth_of(found.path) >= DEPTH_MAX;
            if is_too_much { Then::Stop } else { Then::Enter }
        });
        match (walked, doubt) {
            (_, Some(doubt)) => Err(doubt),
            (Ok(walked), None) if walked.is_complete => Ok(examined),
            (Ok(_), None) => Err(Doubt::TooMany),
            (Err(_), None) => Err(Doubt::Unreadable),
        }
    }

    /// The files at the mark, if it is still the current one.
    fn at_mark(&self, mark: u64) -> Option<Vec<(Name, Stamp)>> {
        (self.mark == mark).then(|| self.index.at_mark())
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn depth_of(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count() + 1
}

/// Whether one of the directories above the path is among these.
fn is_beneath_any(path: &[u8], listed: &HashSet<Name>) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    !listed.is_empty() && slashes.map(|(at, _)| &path[..at]).any(|above| listed.contains(above))
}

#[cfg(test)]
mod tests;
