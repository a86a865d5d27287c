//! How much a workspace on disk holds, determined by walking it. This replaces a quota, which an ordinary
//! user and most file systems cannot have.
//!
//! The program changes the tree during the walk. The walk follows no link, opens only directories beneath the
//! top, and ends early once the limit is exceeded. Pauses between walks are proportional to their duration,
//! so that a tree of many files costs a bounded share of one core. Anything that cannot be counted counts as
//! too much, because a program would put its files into a directory that the walk skips.
//!
//! No walk finds files without a name ([`nameless`]). Those whose size can be read are added. While the sandbox
//! has holders whose files cannot be read, the free space of the device is compared with what it was before they
//! appeared. Blocks that are missing there, and that the walk does not explain, count as the sandbox's.
//!
//! A large workspace is tracked (`host::workspace::tracker`), and a look then asks its index instead of walking.
//! The index depends on events, which a program can evade. A look therefore walks nevertheless when the index
//! comes near a limit, and when blocks are missing on the device that the index does not explain.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::sandbox::DiskHeld;
use ::sandbox::workspace::Used;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::nameless::{self, Holders, Nameless};
use crate::host::workspace::tracker::{self, OpenFiles, Tenancy, Tracked};

/// Minimum pause between two walks.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// A long walk is followed by a pause of this many times its duration.
const WALK_SHARE: u32 = 9;
/// Maximum number of open directories from the top to the current one. Deeper ones are queued and walked like
/// a top.
const DEPTH_MAX: usize = 128;
const WAITING_MAX: usize = 128;
const BLOCK_BYTES: u64 = 512;
/// What a run may add in a workspace that is full already, so that it can delete files.
const SLACK_BYTES: u64 = 1 << 20;
/// With less free space than this on the host's disk, no run may use more of it, whatever its limit.
const HOST_RESERVE_BYTES: u64 = 512 << 20;
/// Other programs use the same device. Unexplained blocks up to this much are not counted.
const NOISE_BYTES: u64 = 8 << 20;
/// After a holder was seen, so many looks in a row must find none: a program can move a descriptor between processes
/// while they are inspected.
const CLEAR_LOOKS: u32 = 10;

/// More than can be counted.
const UNCOUNTABLE: DiskHeld = DiskHeld { bytes: u64::MAX, inodes: u64::MAX };

/// The use of one workspace, measured periodically.
pub(super) struct DiskUse {
    path: PathBuf,
    /// The processes that may hold deleted files open.
    holders: Holders,
    next: Instant,
    /// What the workspace held when the run began, if that was too much already.
    surplus: Option<DiskHeld>,
    /// Free space of the host's disk at that time.
    free_bytes: u64,
    hidden: Hidden,
    /// Tells the tracker of the workspace, if there is one, what the processes inside have open.
    tenancy: Option<Arc<Tenancy>>,
    /// How many looks walked.
    walks: u64,
}

/// Compares the device with the workspace while something may hide files.
#[derive(Debug, Default)]
struct Hidden {
    /// Free space plus what the workspace held, when nothing was hidden. Both change together as long as every
    /// block is explained.
    sum_bytes: Option<u64>,
    /// How many looks in a row must still find no holder whose files cannot be read.
    doubtful_looks: u32,
    /// Whether the last look found one.
    was_seen: bool,
}

impl Hidden {
    /// Begins a run. While nothing inside has run since the last look, that look missed nothing, and other programs
    /// may have used the device since.
    fn begin(&mut self, held: u64, free: u64, is_quiet: bool) {
        let is_clear = is_quiet && !self.was_seen;
        if is_clear || self.sum_bytes.is_none() {
            self.sum_bytes = Some(free.saturating_add(held));
            self.doubtful_looks = 0;
        }
    }

    /// Adds what is missing on the device to what was found.
    fn add(&mut self, held: u64, nameless: Nameless, free: u64) -> u64 {
        self.was_seen = nameless.is_hidden;
        self.doubtful_looks =
            if nameless.is_hidden { CLEAR_LOOKS } else { self.doubtful_looks.saturating_sub(1) };
        let sum = free.saturating_add(held);
        let before = *self.sum_bytes.get_or_insert(sum);
        if self.doubtful_looks == 0 {
            self.sum_bytes = Some(sum);
            return held;
        }
        let missing = before.saturating_sub(sum);
        if missing > NOISE_BYTES { held.saturating_add(missing) } else { held }
    }
}

impl DiskUse {
    pub(super) fn new(path: PathBuf, holders: Holders) -> Self {
        let inspected = path.clone();
        let inspect = move || match rustix::fs::stat(&inspected) {
            Ok(stat) => nameless::find(holders, stat.st_dev).1,
            Err(_) => OpenFiles::default(),
        };
        let tenancy = tracker::move_in(&path, inspect).ok().map(Arc::new);
        let hidden = Hidden::default();
        Self { path, holders, next: Instant::now(), surplus: None, free_bytes: 0, hidden, tenancy, walks: 0 }
    }

    /// Begins a new run, which is not blamed for what is there already. It must be called before the program
    /// starts, otherwise the program's first writes would count as existing content. `known` was measured a
    /// moment ago. It excludes deleted files that are still open; if those exceed a limit, they end the
    /// sandbox between runs.
    /// `is_quiet`: nothing inside has run since the last look.
    pub(super) async fn begin(
        &mut self,
        (bytes_max, inodes_max): (u64, u64),
        known: Option<DiskHeld>,
        is_quiet: bool,
    ) {
        self.free_bytes = free_bytes(&self.path).unwrap_or(u64::MAX);
        let held = match known {
            Some(held) => {
                self.next = Instant::now() + PAUSE_MIN;
                self.hidden.begin(held.bytes, self.free_bytes, is_quiet);
                held
            }
            None => self.look(bytes_max, inodes_max).await.unwrap_or_default(),
        };
        let is_full = held.bytes > bytes_max || held.inodes > inodes_max;
        self.surplus = (is_full && held != UNCOUNTABLE).then_some(held);
    }

    /// Whether the workspace exceeds its limits. It looks only when a look is due.
    pub(super) async fn is_beyond(&mut self, bytes_max: u64, inodes_max: u64) -> bool {
        if !self.is_due() {
            return false;
        }
        // A workspace that cannot be inspected has been removed, together with its sandbox.
        let Some(held) = self.look(bytes_max, inodes_max).await else { return false };
        let surplus = self.surplus.unwrap_or_default();
        held.bytes > bytes_max.max(surplus.bytes.saturating_add(SLACK_BYTES) * u64::from(surplus.bytes > 0))
            || held.inodes > inodes_max.max(surplus.inodes)
            || self.is_host_nearly_full()
    }

    /// Whether a look is due.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    async fn look(&mut self, bytes_max: u64, inodes_max: u64) -> Option<DiskHeld> {
        let started = Instant::now();
        let (path, holders, tenancy) = (self.path.clone(), self.holders, self.tenancy.clone());
        let walked = tokio::task::spawn_blocking(move || {
            let (nameless, open) = nameless::find(holders, rustix::fs::stat(&path)?.st_dev);
            let tracked = tenancy.and_then(|tenancy| Tracking::look(&path, (&tenancy, &open)));
            let limits = (bytes_max, inodes_max);
            let trusted = tracked.as_ref().and_then(|tracked| tracked.trusted(&path, nameless.bytes, limits));
            let is_walked = trusted.is_none();
            let mut held = match trusted {
                Some(held) => held,
                None => {
                    let held = walk(&path, bytes_max.saturating_mul(2), inodes_max.saturating_mul(2))?;
                    tracked.iter().for_each(|tracked| tracked.compare(&path, held));
                    held
                }
            };
            held.bytes = held.bytes.saturating_add(nameless.bytes);
            io::Result::Ok((held, nameless, free_bytes(&path), is_walked))
        });
        let walked = walked.await;
        self.next = Instant::now() + PAUSE_MIN.max(started.elapsed() * WALK_SHARE);
        let (mut held, nameless, free, is_walked) = walked.ok()?.ok()?;
        self.walks += u64::from(is_walked);
        if let Some(free) = free {
            held.bytes = self.hidden.add(held.bytes, nameless, free);
        }
        Some(held)
    }

    /// The last resort against ways to hold blocks that no walk finds.
    fn is_host_nearly_full(&self) -> bool {
        free_bytes(&self.path).is_some_and(|free| {
            free < HOST_RESERVE_BYTES && self.free_bytes.saturating_sub(free) > SLACK_BYTES
        })
    }
}

fn free_bytes(path: &Path) -> Option<u64> {
    let state = rustix::fs::statvfs(path).ok()?;
    Some(state.f_bavail.saturating_mul(state.f_frsize))
}

/// A tracked workspace, and its size by the index.
struct Tracking {
    tracked: Arc<Tracked>,
    used: Used,
}

impl Tracking {
    fn look(path: &Path, known: (&Tenancy, &OpenFiles)) -> Option<Self> {
        let tracked = tracker::find_at(path)?;
        let used = tracked.used(Some(known)).ok()?;
        Some(Self { tracked, used })
    }

    /// The size, if the index can be trusted: it is far from the limits, and the device shows no blocks that
    /// neither the index nor files without a name explain.
    fn trusted(
        &self,
        path: &Path,
        nameless_bytes: u64,
        (bytes_max, inodes_max): (u64, u64),
    ) -> Option<DiskHeld> {
        let held = self.used.bytes.saturating_add(nameless_bytes);
        let is_explained = self.tracked.unexplained_bytes(held, free_bytes(path)?) <= NOISE_BYTES;
        let is_trusted = is_explained && tracker::is_within(&self.used, bytes_max, inodes_max);
        is_trusted.then_some(DiskHeld { bytes: self.used.bytes, inodes: self.used.inodes })
    }

    /// Compares the index with what a walk has found since.
    fn compare(&self, path: &Path, walked: DiskHeld) {
        if let Some(free) = free_bytes(path) {
            self.tracked.confirm(&self.used, (walked.bytes, walked.inodes), free);
        }
    }
}

/// Counts everything beneath a directory, until more than the given numbers is found.
pub(super) fn walk(path: &Path, bytes_stop: u64, inodes_stop: u64) -> io::Result<DiskHeld> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut held = DiskHeld::default();
    let mut waiting = vec![rustix::fs::openat(CWD, path, flags, Mode::empty())?];
    while let Some(top) = waiting.pop() {
        let mut open = vec![Dir::new(top)?];
        while let Some(directory) = open.last_mut() {
            let Some(Ok(entry)) = directory.read() else {
                open.pop();
                continue;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let place = directory.fd()?;
            // An entry that has vanished meanwhile holds nothing.
            let Ok(found) = rustix::fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            held.inodes += 1;
            held.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * BLOCK_BYTES;
            if held.bytes > bytes_stop || held.inodes > inodes_stop {
                return Ok(held);
            }
            if !FileType::from_raw_mode(found.st_mode).is_dir() {
                continue;
            }
            match enter(place, name) {
                Ok(inner) if open.len() < DEPTH_MAX => open.push(Dir::new(inner)?),
                Ok(inner) if waiting.len() < WAITING_MAX => waiting.push(inner),
                // Removed or replaced meanwhile.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
                _ => return Ok(UNCOUNTABLE),
            }
        }
    }
    Ok(held)
}

/// Opens a directory. A server that is not root cannot read a directory that its owner closed, but it has the
/// same identity here. It therefore changes the mode and opens it again, because its contents count too.
fn enter(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags| rustix::fs::openat2(directory, name, flags, Mode::empty(), how);
    match open(flags) {
        Err(rustix::io::Errno::ACCESS) => {
            let place = open(OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) | Mode::RWXU;
            // Through the file descriptor in /proc: a name could denote another directory by now.
            rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), mode)?;
            open(flags)
        }
        opened => opened,
    }
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

    #[test]
    fn files_in_many_and_in_deep_directories_are_counted() {
        let top = std::env::temp_dir().join(format!("palisade-disk-wide-{}", std::process::id()));
        for number in 0..600 {
            std::fs::create_dir_all(top.join(format!("d{number}"))).unwrap();
            std::fs::write(top.join(format!("d{number}/file")), vec![7; 5000]).unwrap();
        }
        let deep = top.join("deep/".repeat(300));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), vec![7; 5000]).unwrap();
        let held = walk(&top, u64::MAX, u64::MAX).unwrap();
        std::fs::remove_dir_all(&top).unwrap();
        assert_eq!(held.inodes, 600 * 2 + 300 + 1);
    }

    #[test]
    fn blocks_that_nothing_explains_count_while_something_may_hide_them() {
        const MB: u64 = 1 << 20;
        let seen = Nameless { bytes: 0, is_hidden: true };
        let none = Nameless::default();
        let mut hidden = Hidden::default();
        hidden.begin(10 * MB, 1000 * MB, true);
        assert_eq!(hidden.add(10 * MB, none, 900 * MB), 10 * MB, "another program wrote");
        assert_eq!(hidden.add(30 * MB, seen, 880 * MB), 30 * MB, "everything is explained");
        assert_eq!(hidden.add(30 * MB, seen, 780 * MB), 130 * MB, "nothing explains it");
        assert_eq!(hidden.add(30 * MB, none, 780 * MB), 130 * MB, "the holder may have been missed");
        for is_quiet in [true, false] {
            hidden.add(30 * MB, seen, 780 * MB);
            hidden.begin(30 * MB, 780 * MB, is_quiet);
            assert_eq!(hidden.add(30 * MB, seen, 780 * MB), 130 * MB, "the next run does not forget it");
        }
        assert_eq!(hidden.add(30 * MB, seen, 875 * MB), 30 * MB, "released, but for noise");
        hidden.add(30 * MB, none, 880 * MB);
        hidden.begin(30 * MB, 500 * MB, true);
        assert_eq!(hidden.add(30 * MB, seen, 500 * MB), 30 * MB, "others wrote while nothing ran here");
        for _ in 0..CLEAR_LOOKS {
            hidden.add(30 * MB, none, 500 * MB);
        }
        assert_eq!(hidden.add(30 * MB, none, 300 * MB), 30 * MB, "nothing is hidden any more");
    }

    #[tokio::test]
    async fn what_a_program_writes_at_once_is_not_taken_for_what_was_there() {
        let top = std::env::temp_dir().join(format!("palisade-disk-first-{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        let mut disk = DiskUse::new(top.clone(), Holders::Programs { first: 1 });
        disk.begin((1 << 20, 100), None, false).await;
        std::fs::write(top.join("file"), vec![7; 3 << 20]).unwrap();
        disk.next = Instant::now();
        let is_beyond = disk.is_beyond(1 << 20, 100).await;
        disk.begin((1 << 20, 100), None, false).await;
        disk.next = Instant::now();
        let is_beyond_later = disk.is_beyond(1 << 20, 100).await;
        std::fs::remove_dir_all(&top).unwrap();
        assert!(is_beyond, "written by the run that is on");
        assert!(!is_beyond_later, "there before the run began");
    }

    #[tokio::test]
    async fn a_tracked_workspace_is_measured_without_a_walk_until_it_comes_near_a_limit() {
        let top = std::env::temp_dir().join(format!("palisade-disk-tracked-{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        for number in 0..600 {
            std::fs::write(top.join(number.to_string()), "x").unwrap();
        }
        let limits = (16 << 20, 10_000);
        // No process has this number, so none has a file open.
        let mut disk = DiskUse::new(top.clone(), Holders::Programs { first: i32::MAX });
        disk.begin(limits, None, false).await;
        assert_eq!(disk.walks, 1, "it is not tracked yet");
        tracker::track_at(&top);
        let mut beyond = async || {
            disk.next = Instant::now();
            let is_beyond = disk.is_beyond(limits.0, limits.1).await;
            (is_beyond, disk.walks)
        };
        // Another program may take more than the tolerated space of the device at the same time.
        let (is_beyond, walks) = beyond().await;
        assert!(!is_beyond && walks <= 2, "{walks}");
        std::fs::write(top.join("large"), vec![7; 20 << 20]).unwrap();
        let (is_beyond, walked) = beyond().await;
        std::fs::remove_dir_all(&top).unwrap();
        assert!(is_beyond);
        assert!(walked > walks, "a walk confirms that the limit is exceeded");
    }
}
