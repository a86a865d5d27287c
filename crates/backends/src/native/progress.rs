//! How far the build of a sandbox has come, for the error message when it takes too long.
//!
//! The host records what it waits for. While it waits for the clone, the clone keeps its current step in its
//! own memory (`jail::step_of`), so nothing is sent or read unless a build takes too long.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::Duration;

use ::sandbox::BackendError;

use super::{kernel_file, status};

/// The state of a clone before its first step.
const BEFORE_FIRST_STEP: &str = "start";
/// The host cannot read this clone; that can happen for an instant while the clone changes its identity.
const UNSEEN_STEP: &str = "a step that cannot be seen";
const STATE_RUNNING: char = 'R';
const STATE_STOPPED: char = 'T';
const STATE_UNINTERRUPTIBLE: char = 'D';

/// What the host waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// The spawner, or a zygote process, to clone itself.
    Clone,
    /// The clone to raise its walls.
    Walls,
    /// The host's own examination of the walls.
    Verification,
    /// The guest to hide from its siblings.
    Consent,
}

/// Shared between the build and its deadline.
#[derive(Debug, Default)]
pub(super) struct Progress {
    stage: AtomicU8,
    clone: AtomicI32,
}

impl Progress {
    pub(super) fn reach(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Records that the clone exists.
    pub(super) fn is_cloned(&self, pid: i32) {
        self.clone.store(pid, Ordering::Relaxed);
        self.reach(Stage::Walls);
    }

    /// The error of a build that did not finish in that time. `maker` is the process that clones.
    pub(super) fn late(&self, maker: i32, patience: Duration) -> BackendError {
        let clone = self.clone.load(Ordering::Relaxed);
        let (step, pid) = match self.stage.load(Ordering::Relaxed) {
            stage if stage == Stage::Clone as u8 => ("clone".to_owned(), maker),
            stage if stage == Stage::Walls as u8 => (step_of(clone), clone),
            stage if stage == Stage::Verification as u8 => ("verification".to_owned(), clone),
            _ => ("consent".to_owned(), clone),
        };
        let words = format!("it did not end within {} s; {}", patience.as_secs(), state_of(pid));
        BackendError::Build { step, source: io::Error::new(io::ErrorKind::TimedOut, words) }
    }
}

fn step_of(clone: i32) -> String {
    match jail::step_of(clone) {
        Ok(step) => step.unwrap_or_else(|| BEFORE_FIRST_STEP.to_owned()),
        Err(_) => UNSEEN_STEP.to_owned(),
    }
}

/// What the kernel reports about a process that makes no progress. See proc(5), `stat` and `wchan`.
fn state_of(pid: i32) -> String {
    let wchan = kernel_file::read(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let place = match wchan.trim() {
        "" | "0" => String::new(),
        place => format!(", in the kernel's `{place}`"),
    };
    match status::state(pid) {
        Some(STATE_STOPPED) => "its process is stopped".to_owned(),
        Some(STATE_UNINTERRUPTIBLE) => format!("its process waits and cannot be interrupted{place}"),
        Some(STATE_RUNNING) => "its process runs".to_owned(),
        Some(_) => format!("its process waits{place}"),
        None => "its process is gone".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn a_clone_that_takes_too_long_is_looked_at() {
        let progress = Progress::default();
        progress.is_cloned(i32::try_from(std::process::id()).unwrap());
        let error = progress.late(1, PATIENCE);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(error.to_string(), "building the sandbox failed at start");
        assert!(cause.starts_with("it did not end within 5 s; its process "), "{cause}");
        progress.is_cloned(i32::MAX);
        assert!(progress.late(1, PATIENCE).to_string().ends_with(UNSEEN_STEP));
    }

    #[test]
    fn what_the_host_itself_waits_for_is_named() {
        let progress = Progress::default();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(progress.late(own, PATIENCE).to_string().ends_with("at clone"));
        progress.is_cloned(own);
        progress.reach(Stage::Verification);
        assert!(progress.late(own, PATIENCE).to_string().ends_with("at verification"));
        progress.reach(Stage::Consent);
        assert!(progress.late(own, PATIENCE).to_string().ends_with("at consent"));
    }
}
