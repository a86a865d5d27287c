//! The inotify(7) watches on the directories of one workspace.
//!
//! The kernel grants a user a limited number of instances and watches. A program inside decides how many
//! directories there are, so both numbers are bounded here, well below what the user has.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::Doubt;
use super::index::Name;

/// The most directories of one workspace.
const DIRECTORIES_MAX: usize = 4096;
/// The part of the user's watches that this server uses at most: one in so many.
const SHARE: usize = 4;
/// Assumed where the kernel does not say how many watches a user may have: its smallest default.
const WATCHES_ASSUMED: usize = 8192;
/// The most events handled in one look. The kernel's queue is shorter.
const EVENTS_MAX: usize = 1 << 16;
const BUFFER_BYTES: usize = 16 << 10;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ONLYDIR);
/// Events after which the contents of a directory are listed anew.
const STRUCTURE: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// Watches of all workspaces together.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The watches of one workspace.
#[derive(Debug)]
pub(super) struct Watches {
    inotify: OwnedFd,
    /// The directory of each watch, as it was called when it was last listed.
    paths: HashMap<i32, Name>,
}

/// What the kernel reported since the last look.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Entries to examine.
    pub(super) entries: BTreeSet<Name>,
    /// Directories that appeared, vanished or were replaced.
    pub(super) directories: BTreeSet<Name>,
    /// Names that appeared without being moved there.
    pub(super) created: BTreeSet<Name>,
    /// Files that were closed by a process that could write.
    pub(super) closed: BTreeSet<Name>,
}

impl Watches {
    pub(super) fn new() -> Result<Self, Doubt> {
        let inotify =
            inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|_| Doubt::NoWatch)?;
        Ok(Self { inotify, paths: HashMap::new() })
    }

    /// Watches an open directory that has this path now. A directory that is watched already gets the path.
    pub(super) fn add(&mut self, directory: BorrowedFd<'_>, path: Name) -> Result<(), Doubt> {
        let is_room = self.paths.len() < DIRECTORIES_MAX && IN_USE.load(Ordering::Relaxed) < most();
        if !is_room {
            return Err(Doubt::TooMany);
        }
        // Through the file descriptor in /proc: a name could denote another directory by now.
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&self.inotify, place, CHANGES).map_err(|_| Doubt::NoWatch)?;
        if self.paths.insert(watch, path).is_none() {
            IN_USE.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Everything that was reported since the last call.
    pub(super) fn drain(&mut self) -> Result<Touched, Doubt> {
        let mut touched = Touched::default();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        for _ in 0..EVENTS_MAX {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(touched),
                Err(Errno::INTR) => continue,
                Err(_) => return Err(Doubt::NoWatch),
            };
            let happened = event.events();
            if happened.contains(ReadFlags::QUEUE_OVERFLOW) || happened.contains(ReadFlags::UNMOUNT) {
                return Err(Doubt::Overflow);
            }
            if happened.contains(ReadFlags::IGNORED) {
                if self.paths.remove(&event.wd()).is_some() {
                    IN_USE.fetch_sub(1, Ordering::Relaxed);
                }
                continue;
            }
            let (Some(above), Some(name)) = (self.paths.get(&event.wd()), event.file_name()) else {
                continue;
            };
            touched.add(above, name.to_bytes(), happened);
        }
        Err(Doubt::Overflow)
    }
}

impl Touched {
    fn add(&mut self, above: &[u8], name: &[u8], happened: ReadFlags) {
        let path = joined(above, name);
        if happened.intersects(STRUCTURE) {
            if happened.contains(ReadFlags::ISDIR) {
                self.directories.insert(path.clone());
            }
            // A directory grows with its names.
            if !above.is_empty() {
                self.entries.insert(above.into());
            }
        }
        if happened.contains(ReadFlags::CREATE) {
            self.created.insert(path.clone());
        }
        if happened.contains(ReadFlags::CLOSE_WRITE) {
            self.closed.insert(path.clone());
        }
        self.entries.insert(path);
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.paths.len(), Ordering::Relaxed);
    }
}

/// A path of a directory and a name or path within it.
pub(super) fn joined(above: &[u8], name: &[u8]) -> Name {
    match (above.is_empty(), name.is_empty()) {
        (true, _) => name.into(),
        (false, true) => above.into(),
        (false, false) => [above, b"/", name].concat().into(),
    }
}

fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
        let granted = text.ok().and_then(|text| text.trim().parse().ok());
        granted.unwrap_or(WATCHES_ASSUMED) / SHARE
    })
}
