//! Removes what sandboxes leave in the kernel, without delaying any answer.
//!
//! The spawner uses it. A control group is busy for a short time after its last process died. A removal that
//! fails is tried again while the spawner waits for its next request.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// Pause before the first attempt, in which the server writes its answer, and between two attempts.
const PAUSE: Duration = Duration::from_millis(3);
/// How long the removal of a group is tried. After that the next server's sweep removes it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long sandboxes may take to end when the server is gone. Longer than [`crate::LINGER_MS_MAX`].
const PATIENCE_AT_END: Duration = Duration::from_secs(10);

/// Control groups and namespaces to be removed.
#[derive(Default)]
pub(crate) struct Removal {
    waiting: Vec<Remains>,
    at_end: Vec<PathBuf>,
}

/// What is left of one sandbox.
struct Remains {
    groups: Vec<PathBuf>,
    namespaces: Vec<OwnedFd>,
    due: Instant,
    deadline: Instant,
}

impl Removal {
    pub(crate) fn add(&mut self, groups: Vec<PathBuf>, namespaces: Vec<OwnedFd>) {
        let now = Instant::now();
        self.waiting.push(Remains { groups, namespaces, due: now + PAUSE, deadline: now + PATIENCE });
    }

    pub(crate) fn add_at_end(&mut self, groups: Vec<PathBuf>) {
        self.at_end.extend(groups);
    }

    /// Waits for the next request and removes meanwhile what is due.
    pub(crate) fn until_readable(&mut self, requests: &OwnedFd) {
        loop {
            self.attempt();
            let Some(due) = self.waiting.iter().map(|remains| remains.due).min() else { return };
            let pause = due.saturating_duration_since(Instant::now());
            let mut list = [PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::IN)];
            let pause = Timespec::try_from(pause).unwrap_or_default();
            if !matches!(rustix::event::poll(&mut list, Some(&pause)), Ok(0)) {
                return;
            }
        }
    }

    /// The server is gone. Its guests end by themselves because their streams closed, one after the other
    /// ([`crate::JailPlan::linger_ms`]). Then everything is removed. Sandboxes that still run end with the
    /// spawner.
    pub(crate) fn at_end(&mut self) {
        let deadline = Instant::now() + PATIENCE_AT_END;
        while Instant::now() < deadline {
            self.at_end.retain(|group| !remove_tree(group));
            if self.at_end.is_empty() && !has_children() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn attempt(&mut self) {
        let now = Instant::now();
        for remains in self.waiting.iter_mut().filter(|remains| remains.due <= now) {
            remains.namespaces.clear();
            remains.groups.retain(|group| !is_gone(fs::remove_dir(group)));
            remains.due = now + PAUSE;
        }
        let is_left = |remains: &Remains| !remains.groups.is_empty() || !remains.namespaces.is_empty();
        self.waiting.retain(|remains| is_left(remains) && now < remains.deadline);
    }
}

/// Whether a child of this process lives. The spawner never waits for one: the kernel reaps them
/// (`sys::ignore_child_signal`).
fn has_children() -> bool {
    rustix::process::wait(rustix::process::WaitOptions::NOHANG).is_ok()
}

fn is_gone(removed: std::io::Result<()>) -> bool {
    match removed {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes a group and the groups beneath it; `false` while a process is still in one.
fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    is_gone(fs::remove_dir(group))
}
