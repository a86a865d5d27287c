//! Memory of the kernel that descriptors of a sandbox hold, where no control group counts it: what waits in pipes, watches of
//! epoll(7), file locks.
//!
//! Found by looking at every descriptor, which is dear; so it is done seldom, and a sandbox with more of them than can be
//! looked at in time counts as beyond its limit.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::kernel_file;
use super::tree;

/// Between two looks, at least, and so many times as long as the last one took.
const PAUSE: Duration = Duration::from_millis(100);
const LOOKING_SHARE: u32 = 20;
/// How long one look may take and how much it may read.
const LOOK_MAX: Duration = Duration::from_millis(200);
const INFO_BYTES_MAX: usize = 4 << 20;

/// Pipes of ordinary programs are empty most of the time; beyond a few each counts as full. See pipe(7).
const PIPES_FREE: usize = 64;
const PIPE_BYTES: u64 = 64 << 10;
/// What the kernel keeps for one watch or lock.
const ENTRY_BYTES: u64 = 256;

/// What was seen at the last look, and when the next is due.
#[derive(Default)]
pub(super) struct Descriptors {
    bytes: u64,
    next: Option<Instant>,
}

impl Descriptors {
    /// What the descriptors of a sandbox hold, as far as it was looked at lately.
    pub(super) fn bytes(&mut self, first: i32) -> u64 {
        let started = Instant::now();
        if self.next.is_none_or(|next| next <= started) {
            let mut look = Look { pipes: BTreeSet::new(), entries: 0, bytes_left: INFO_BYTES_MAX };
            let is_done = look.at_all(first, started + LOOK_MAX).is_some();
            self.bytes = if is_done { look.bytes() } else { tree::BEYOND };
            self.next = Some(Instant::now() + PAUSE.max(started.elapsed() * LOOKING_SHARE));
        }
        self.bytes
    }
}

struct Look {
    pipes: BTreeSet<String>,
    /// Watches and locks.
    entries: u64,
    bytes_left: usize,
}

impl Look {
    /// `None` if it takes too long. Process 1 is the guest, which holds next to nothing.
    fn at_all(&mut self, first: i32, deadline: Instant) -> Option<()> {
        for pid in tree::members(first).into_iter().skip(1) {
            // Who has ended has none.
            let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
            for descriptor in descriptors.flatten() {
                if Instant::now() > deadline {
                    return None;
                }
                self.at_one(pid, &descriptor.path())?;
            }
        }
        Some(())
    }

    fn at_one(&mut self, pid: i32, link: &Path) -> Option<()> {
        let (Ok(target), Some(number)) = (fs::read_link(link), link.file_name()) else { return Some(()) };
        let target = target.to_string_lossy();
        let mark = match &*target {
            "anon_inode:[eventpoll]" => "tfd:",
            pipe if pipe.starts_with("pipe:") => {
                self.pipes.insert(pipe.to_owned());
                return Some(());
            }
            file if file.starts_with('/') => "lock:",
            _ => return Some(()),
        };
        let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(number);
        let Ok((text, is_whole)) = kernel_file::read_at_most(info, self.bytes_left) else { return Some(()) };
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        self.entries += text.lines().filter(|line| line.starts_with(mark)).count() as u64;
        is_whole.then_some(())
    }

    fn bytes(&self) -> u64 {
        let full = self.pipes.len().saturating_sub(PIPES_FREE) as u64;
        full * PIPE_BYTES + self.entries * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn pipes_watches_and_locks_are_found() {
        let mut look = Look { pipes: BTreeSet::new(), entries: 0, bytes_left: INFO_BYTES_MAX };
        let watcher = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let data = rustix::event::epoll::EventData::new_u64(0);
        let flags = rustix::event::epoll::EventFlags::IN;
        rustix::event::epoll::add(&watcher, &reader, data, flags).unwrap();
        let path = std::env::temp_dir().join(format!("palisade-lock-{}", std::process::id()));
        let locked = fs::File::create(&path).unwrap();
        locked.lock().unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        for descriptor in [watcher.as_fd(), reader.as_fd(), locked.as_fd()] {
            use std::os::fd::AsRawFd;
            let link = format!("/proc/{own}/fd/{}", descriptor.as_raw_fd());
            look.at_one(own, Path::new(&link)).unwrap();
        }
        fs::remove_file(&path).unwrap();
        assert_eq!((look.pipes.len(), look.entries), (1, 2));
        assert_eq!(look.bytes(), 2 * ENTRY_BYTES);
        look.bytes_left = 0;
        let link = format!("/proc/{own}/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&watcher));
        assert_eq!(look.at_one(own, Path::new(&link)), None, "there is more than may be read");
    }
}
