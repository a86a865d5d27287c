//! How much a workspace on disk holds, found out by walking it: the stand-in for a quota that an ordinary user, and
//! most file systems, cannot have.
//!
//! The program changes what is walked while it is walked. Nothing is followed, nothing is opened but directories
//! beneath the top, and a walk ends early once the limit is passed. Walks take turns with pauses in proportion, so
//! that a tree of many files costs a bounded share of one core.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};

/// Between two walks at least.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// A walk that takes long is followed by a pause of so many times as long.
const WALK_SHARE: u32 = 9;
/// Directories within directories; deeper ones are not counted, and cannot hold what the inode limit does not.
const DEPTH_MAX: usize = 256;
const BLOCK_BYTES: u64 = 512;
/// What a run in a workspace that is full already may add: room to take files away.
const SLACK_BYTES: u64 = 1 << 20;

/// What was found in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// The use of one workspace, looked at now and then.
pub(super) struct DiskUse {
    path: PathBuf,
    next: Instant,
    /// What was there when the run began, if that was too much already.
    surplus: Option<Held>,
    is_first: bool,
}

impl DiskUse {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, next: Instant::now(), surplus: None, is_first: true }
    }

    /// A new run: what is there already is not its fault.
    pub(super) fn begin(&mut self) {
        self.is_first = true;
        self.surplus = None;
        self.next = Instant::now();
    }

    /// Whether more is there than there may be; looks only when it is time again.
    pub(super) async fn is_beyond(&mut self, bytes_max: u64, inodes_max: u64) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let started = Instant::now();
        let path = self.path.clone();
        let (stop_bytes, stop_inodes) = (bytes_max.saturating_mul(2), inodes_max.saturating_mul(2));
        let walked = tokio::task::spawn_blocking(move || walk(&path, stop_bytes, stop_inodes)).await;
        self.next = Instant::now() + PAUSE_MIN.max(started.elapsed() * WALK_SHARE);
        // A workspace that cannot be looked at has been removed, and its sandbox with it.
        let Ok(Ok(held)) = walked else { return false };
        if std::mem::take(&mut self.is_first) && (held.bytes > bytes_max || held.inodes > inodes_max) {
            self.surplus = Some(held);
        }
        let surplus = self.surplus.unwrap_or_default();
        held.bytes > bytes_max.max(surplus.bytes.saturating_add(SLACK_BYTES) * u64::from(surplus.bytes > 0))
            || held.inodes > inodes_max.max(surplus.inodes)
    }
}

/// Everything beneath a directory, until more than this was found.
pub(super) fn walk(path: &PathBuf, bytes_stop: u64, inodes_stop: u64) -> io::Result<Held> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let mut held = Held::default();
    let mut open: Vec<OwnedFd> = vec![top];
    while let Some(directory) = open.pop() {
        for entry in Dir::read_from(&directory)? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            // What vanished meanwhile holds nothing.
            let Ok(found) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            held.inodes += 1;
            held.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * BLOCK_BYTES;
            if held.bytes > bytes_stop || held.inodes > inodes_stop {
                return Ok(held);
            }
            if FileType::from_raw_mode(found.st_mode).is_dir()
                && open.len() < DEPTH_MAX
                && let Ok(inner) = enter(directory.as_fd(), name)
            {
                open.push(inner);
            }
        }
    }
    Ok(held)
}

fn enter(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(directory, name, flags, Mode::empty(), how)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_counted_and_links_lead_nowhere() {
        let top = std::env::temp_dir().join(format!("palisade-disk-{}", std::process::id()));
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/b/file"), vec![7; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", top.join("link")).unwrap();
        let held = walk(&top, u64::MAX, u64::MAX).unwrap();
        let early = walk(&top, u64::MAX, 1).unwrap();
        std::fs::remove_dir_all(&top).unwrap();
        assert_eq!(held.inodes, 4);
        assert!((100_000..400_000).contains(&held.bytes), "{held:?}");
        assert_eq!(early.inodes, 2, "a walk ends once enough was found");
    }
}
