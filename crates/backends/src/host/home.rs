//! What the directories of container walls have in common: a lock that shows that the server lives, and the control
//! groups of containers, whose members are killed and which are removed when a runtime or an engine forgets them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};

/// How many times, and at which pace, the members of one group are killed until none is left.
const KILL_ROUNDS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(10);
const LOCK: &str = "lock";

/// Creates a directory that only this user can enter, unless it exists.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates the directory of this server and locks it.
pub(crate) fn take(folder: &Path) -> io::Result<File> {
    create_private(folder)?;
    let lock = File::options().write(true).create(true).truncate(false).open(folder.join(LOCK))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

/// The lock of a server's directory, if that server is gone. A live server holds it.
pub(crate) fn take_abandoned(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Kills what is in a control group. A runtime or an engine that was killed while it built a container leaves processes
/// that it no longer knows. Their end is not waited for any longer than to the given moment.
pub(crate) fn kill_members(group: &Path, until: Instant) {
    for _ in 0..KILL_ROUNDS {
        let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let pids: Vec<Pid> = listed.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            // One that has ended meanwhile cannot be killed.
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
        if Instant::now() >= until {
            return;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// What to do with the members of groups that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    /// A group that has any stays.
    Spare,
    /// Their end is waited for, up to that moment.
    Kill { until: Instant },
}

/// Removes a control group and those beneath it. Returns whether it is gone.
pub(crate) fn remove_groups(directory: &Path, members: Members) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path(), members);
        }
    }
    if let Members::Kill { until } = members {
        kill_members(directory, until);
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
