//! What the file descriptors of a sandbox hold in the kernel: file locks, watches of epoll(7), and data in
//! pipes.
//!
//! A lock on a file of /usr slows down every process on the machine that closes that file. A watch on an
//! epoll descriptor makes the kernel walk all watches beneath it under one mutex. The numbers of both are
//! therefore bounded for every sandbox. Where no control group counts memory, all of them are charged as
//! memory.
//!
//! They are found by inspecting every file descriptor, which is expensive. It is therefore done rarely, and
//! not in the first moments of a run. A sandbox with more descriptors than one look can process, twice in a row,
//! counts as beyond its limit. Where they belong to another user (sub-ids of an ordinary user), they cannot be inspected.
//!
//! No kernel limit replaces this look: `RLIMIT_LOCKS` has had no effect since Linux 2.4.25 (getrlimit(2)), the
//! range of a lock is behind a pointer that a system-call filter cannot read, and SQLite needs such locks. What a
//! program can place between two looks is therefore bounded by the pause alone, which must not grow with the load
//! of the machine.
//!
//! An epoll descriptor in a message that waits in a socket (SCM_RIGHTS, see unix(7)) keeps its watches, and no table
//! shows it. A look finds only that there are such messages. `watch` then judges by the kernel's own memory. A descriptor that
//! only a blocked system call holds, such as poll(2), is not found at all; the memory limit bounds those.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::kernel_file;
use super::status::has_ended;
use super::tree::{self, Budget};

/// Minimum and maximum pause between two looks, and the pause as a multiple of the processor time of the last look.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(500);
const LOOKING_SHARE: u32 = 20;
/// How much processor time one look may take, and how much it may read.
const LOOK_MAX: Duration = Duration::from_millis(200);
const INFO_BYTES_MAX: usize = 8 << 20;

/// Pipes of ordinary programs are empty most of the time. Beyond a few, each counts as full. See pipe(7).
const PIPES_FREE: usize = 64;
const PIPE_BYTES: u64 = 64 << 10;
/// What the kernel keeps for one watch or lock.
const ENTRY_BYTES: u64 = 256;

/// Enough locks for every database, and too few to affect other processes.
const LOCKS_MAX: u64 = 1024;
/// More than any event loop of an ordinary program uses; the kernel walks them in a few milliseconds.
const WATCHES_MAX: u64 = 50_000;
/// How many watches hidden descriptors may have where no control group shows the kernel's memory.
const HIDDEN_WATCHES_MAX: u64 = 500_000;
/// How long descriptors must be hidden in every look until they count. A message usually waits for much less.
const HIDING_MIN: Duration = Duration::from_secs(1);
/// The same for processes that end before they can be inspected, as those of a busy script do.
const EVADING_MIN: Duration = Duration::from_secs(10);
/// Under so many numbers one descriptor is expected to be watched at most. A larger limit must not end a run earlier.
const NUMBERS_MAX: u32 = 256;
/// So many unfinished looks in a row count as too much: one may be due to a slow machine.
const UNFINISHED_MAX: u32 = 2;
/// How often the processes are listed in one look, while some end before they can be inspected.
const LISTS_MAX: usize = 3;

/// The result of the last look, and when the next one is due.
#[derive(Default)]
pub(super) struct Descriptors {
    bytes: u64,
    are_too_many: bool,
    /// How many there are, and how many further ones wait in messages.
    count: u64,
    waiting: u64,
    /// That some wait in messages, and that processes end before they can be inspected.
    messages: Streak,
    evasion: Streak,
    /// How many looks in a row ended early.
    unfinished: u32,
    next: Option<Instant>,
}

/// Something that look after look finds.
#[derive(Default)]
struct Streak {
    since: Option<Instant>,
    /// From the first of these looks to the last.
    lasted: Duration,
}

impl Streak {
    fn note(&mut self, is_found: bool, now: Instant) {
        self.since = self.since.or(Some(now)).filter(|_| is_found);
        self.lasted = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
    }
}

impl Descriptors {
    /// Looks, if a look is due.
    pub(super) fn look(&mut self, first: i32) {
        let started = Instant::now();
        if started < *self.next.get_or_insert(started + PAUSE) {
            return;
        }
        let (mut look, budget) = (Look::new(), Budget::new(LOOK_MAX));
        let is_done = look.at_all(first, &budget).is_some();
        self.unfinished = if is_done { 0 } else { self.unfinished + 1 };
        let is_endless = self.unfinished >= UNFINISHED_MAX;
        self.bytes = if is_endless { tree::BEYOND } else { look.bytes() };
        self.are_too_many = is_endless || look.locks > LOCKS_MAX || look.watches > WATCHES_MAX;
        (self.count, self.waiting) = (look.count, look.waiting);
        self.messages.note(look.waiting > 0, started);
        self.evasion.note(look.is_evaded, started);
        self.next = Some(Instant::now() + pause_after(budget.taken()));
    }

    /// What the descriptors held at the last look.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there were more locks or watches than one sandbox may have.
    pub(super) fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Whether some have been hidden for longer than a message usually waits.
    pub(super) fn are_hidden(&self) -> bool {
        self.messages.lasted >= HIDING_MIN || self.evasion.lasted >= EVADING_MIN
    }

    /// Whether those in messages can have too many watches: each can watch every descriptor in the tables, under every
    /// number. Sockets in messages can hide further ones.
    pub(super) fn may_hide_too_many(&self, open_files: u32) -> bool {
        let numbers = u64::from(open_files.min(NUMBERS_MAX));
        let watches = self.waiting.saturating_mul(self.count).saturating_mul(numbers);
        self.are_hidden() && watches > HIDDEN_WATCHES_MAX
    }
}

/// The pause after a look that took this much processor time. The time that a look waited for a processor does not
/// count: on a machine with much to do, the pause would become longer than a program needs to do harm.
fn pause_after(taken: Duration) -> Duration {
    (taken * LOOKING_SHARE).clamp(PAUSE, PAUSE_MAX)
}

struct Look {
    /// By device and inode, including named pipes.
    pipes: BTreeSet<(u64, u64)>,
    watches: u64,
    locks: u64,
    count: u64,
    /// How many descriptors wait in messages, and the sockets that were asked, which processes inherit.
    waiting: u64,
    sockets: BTreeSet<u64>,
    /// Whether a process ended before it could be inspected, and others took its place.
    is_evaded: bool,
    bytes_left: usize,
}

impl Look {
    fn new() -> Self {
        Self {
            pipes: BTreeSet::new(),
            watches: 0,
            locks: 0,
            count: 0,
            waiting: 0,
            sockets: BTreeSet::new(),
            is_evaded: false,
            bytes_left: INFO_BYTES_MAX,
        }
    }

    /// `None` if it takes too long. The threads of a process share its table, see `jail`'s system-call list.
    fn at_all(&mut self, first: i32, budget: &Budget) -> Option<()> {
        self.at_sockets(first, budget)?;
        let mut seen = BTreeSet::from([first]);
        // A process can hand its files to a child and end, before it is inspected and after the child could be listed.
        for _ in 0..LISTS_MAX {
            let mut has_lost = false;
            for pid in tree::members(first) {
                if seen.contains(&pid) {
                    continue;
                }
                let is_inspected = self.at_process(pid, budget)?;
                has_lost |= !is_inspected;
                if is_inspected || has_ended(pid) {
                    seen.insert(pid);
                }
            }
            if !has_lost {
                return Some(());
            }
        }
        self.is_evaded = true;
        Some(())
    }

    /// Whether the process was still there at the end. One that may not be inspected counts as inspected: under sub-ids of
    /// an ordinary user (user_namespaces(7)), the tables belong to another user.
    fn at_process(&mut self, pid: i32, budget: &Budget) -> Option<bool> {
        let thread = tree::speaker(pid);
        let descriptors = match fs::read_dir(format!("/proc/{thread}/fd")) {
            Ok(descriptors) => descriptors,
            Err(error) => return Some(error.kind() == ErrorKind::PermissionDenied),
        };
        for descriptor in descriptors.flatten() {
            if budget.is_used_up() {
                return None;
            }
            self.at_one(thread, &descriptor.path())?;
        }
        Some(!has_ended(pid))
    }

    /// Process 1 is the guest, which holds almost nothing. Programs may send messages to its sockets.
    fn at_sockets(&mut self, first: i32, budget: &Budget) -> Option<()> {
        for descriptor in fs::read_dir(format!("/proc/{first}/fd")).into_iter().flatten().flatten() {
            if budget.is_used_up() {
                return None;
            }
            let (link, name) = (descriptor.path(), descriptor.file_name());
            let Ok(file) = fs::metadata(&link) else { continue };
            if file.file_type().is_socket() && self.sockets.insert(file.ino()) {
                self.waiting += waiting_in(&self.info(first, &name)?);
            }
        }
        Some(())
    }

    fn at_one(&mut self, thread: i32, link: &Path) -> Option<()> {
        // stat of the link target, which opens nothing.
        let (Ok(file), Some(number)) = (fs::metadata(link), link.file_name()) else { return Some(()) };
        self.count += 1;
        if file.file_type().is_fifo() {
            self.pipes.insert((file.dev(), file.ino()));
        }
        // Everything that can be open can be locked: /dev/null and the one inode of all event descriptors, too.
        let info = self.info(thread, number)?;
        let count = |mark: &str| info.lines().filter(|line| line.starts_with(mark)).count() as u64;
        self.locks += count("lock:");
        self.watches += count("tfd:");
        if file.file_type().is_socket() && self.sockets.insert(file.ino()) {
            self.waiting += waiting_in(&info);
        }
        Some(())
    }

    /// What the kernel says about a descriptor; `None` if there is more than may be read.
    fn info(&mut self, thread: i32, number: &OsStr) -> Option<String> {
        let info = Path::new("/proc").join(thread.to_string()).join("fdinfo").join(number);
        let Ok((text, is_whole)) = kernel_file::read_at_most(info, self.bytes_left) else {
            return Some(String::new());
        };
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        is_whole.then_some(text)
    }

    fn bytes(&self) -> u64 {
        let full = self.pipes.len().saturating_sub(PIPES_FREE) as u64;
        full * PIPE_BYTES + (self.watches + self.locks) * ENTRY_BYTES
    }
}

/// How many descriptors wait in the messages of a socket.
fn waiting_in(info: &str) -> u64 {
    info.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_pause_between_looks_is_bounded() {
        assert_eq!(pause_after(Duration::ZERO), PAUSE);
        assert_eq!(pause_after(Duration::from_millis(10)), Duration::from_millis(200));
        assert_eq!(pause_after(LOOK_MAX), PAUSE_MAX);
    }

    #[test]
    fn a_look_that_waits_for_a_processor_does_not_delay_the_next() {
        let budget = Budget::new(LOOK_MAX);
        // As if another process had the processor.
        std::thread::sleep(PAUSE);
        assert_eq!(pause_after(budget.taken()), PAUSE);
    }

    #[test]
    fn messages_with_descriptors_hide_some_if_they_wait_for_long() {
        use std::mem::MaybeUninit;
        use std::os::fd::AsRawFd;

        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        let (sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let link = format!("/proc/{own}/fd/{}", receiver.as_raw_fd());
        let waiting = || {
            let mut look = Look::new();
            look.at_one(own, Path::new(&link)).unwrap();
            look.waiting
        };
        assert_eq!(waiting(), 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let descriptors = [sender.as_fd()];
        assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let data = [std::io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&sender, &data, &mut message, SendFlags::empty()).unwrap();
        assert_eq!(waiting(), 1);

        let now = Instant::now();
        let after = |lasted, waiting, count| {
            let mut found = Descriptors { waiting, count, ..Descriptors::default() };
            found.messages.note(true, now);
            found.messages.note(true, now + lasted);
            found
        };
        assert!(!after(Duration::ZERO, 1, 1).are_hidden() && after(HIDING_MIN, 1, 1).are_hidden());
        assert!(!after(HIDING_MIN, 1, 300).may_hide_too_many(4096), "an ordinary program");
        assert!(after(HIDING_MIN, 40, 10_000).may_hide_too_many(256));
        assert!(!after(Duration::ZERO, 40, 10_000).may_hide_too_many(256));
        let mut streak = after(HIDING_MIN, 1, 1);
        streak.messages.note(false, now + HIDING_MIN);
        assert!(!streak.are_hidden(), "they were received");
    }

    #[test]
    fn pipes_watches_and_locks_are_found() {
        let mut look = Look::new();
        let watcher = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let data = rustix::event::epoll::EventData::new_u64(0);
        let flags = rustix::event::epoll::EventFlags::IN;
        rustix::event::epoll::add(&watcher, &reader, data, flags).unwrap();
        let path = std::env::temp_dir().join(format!("palisade-lock-{}", std::process::id()));
        let locked = fs::File::create(&path).unwrap();
        locked.lock().unwrap();
        // All event descriptors of the kernel have one inode, and with it one list of locks.
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        rustix::fs::fcntl_lock(&event, rustix::fs::FlockOperation::LockShared).unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        for descriptor in [watcher.as_fd(), reader.as_fd(), locked.as_fd(), event.as_fd()] {
            use std::os::fd::AsRawFd;
            let link = format!("/proc/{own}/fd/{}", descriptor.as_raw_fd());
            look.at_one(own, Path::new(&link)).unwrap();
        }
        fs::remove_file(&path).unwrap();
        assert_eq!((look.pipes.len(), look.watches, look.locks), (1, 1, 2));
        assert_eq!(look.bytes(), 3 * ENTRY_BYTES);
        look.bytes_left = 0;
        let link = format!("/proc/{own}/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&watcher));
        assert_eq!(look.at_one(own, Path::new(&link)), None, "there is more than may be read");
    }
}
