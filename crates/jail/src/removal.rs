//! Taking away control groups, off the path of any answer.
//!
//! A group is busy for an instant after its last process died: what cannot go now is tried again while the
//! spawner waits for its next request.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// Between two tries.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// How long a group is tried; after that the next server's sweep has it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Groups that are to go.
#[derive(Default)]
pub(crate) struct Removal {
    waiting: Vec<(PathBuf, Instant)>,
    at_end: Vec<PathBuf>,
}

impl Removal {
    pub(crate) fn add(&mut self, groups: Vec<PathBuf>) {
        let deadline = Instant::now() + PATIENCE;
        self.waiting.extend(groups.into_iter().map(|group| (group, deadline)));
        self.attempt();
    }

    pub(crate) fn add_at_end(&mut self, groups: Vec<PathBuf>) {
        self.at_end.extend(groups);
    }

    /// Waits for the next request, trying again meanwhile.
    pub(crate) fn until_readable(&mut self, requests: &OwnedFd) {
        while !self.waiting.is_empty() {
            let mut list = [PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut list, Some(&PAUSE)), Ok(0)) {
                return;
            }
            self.attempt();
        }
    }

    /// The server is gone: its guests end by themselves as their streams closed; then everything goes.
    pub(crate) fn at_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.at_end.retain(|group| !remove_tree(group));
            if self.at_end.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn attempt(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|(group, deadline)| !is_gone(fs::remove_dir(group)) && now < *deadline);
    }
}

fn is_gone(removed: std::io::Result<()>) -> bool {
    match removed {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes a group and those beneath it; `false` while something is still in them.
fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    is_gone(fs::remove_dir(group))
}
