//! What the directories of container walls have in common: a lock that shows that the server lives, and the control
//! groups of containers, whose members are killed and which are removed when a runtime or an engine forgets them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};

/// How many times, and at which pace, the members of one group are killed until none is left.
const KILL_ROUNDS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(10);
/// Processes that are held by a file descriptor at once.
const HELD_AT_ONCE: usize = 16;
/// Longer than it takes a server to lock what it has created.
const STARTING: Duration = Duration::from_secs(2);
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

/// The lock of a server's directory, if that server is gone. A live server holds it. A server that is just starting has
/// created it but may not hold it yet, so a new one is left alone for a moment.
pub(crate) fn take_abandoned(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    // Nothing is written to it, so this is the time of its creation.
    let created = lock.metadata().and_then(|found| found.modified()).ok()?;
    let age = created.elapsed().unwrap_or_default();
    std::thread::sleep(STARTING.saturating_sub(age));
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    // A server may have ended meanwhile, and another one of that name may have begun.
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let is_same =
        lock.metadata().map(identity).ok()? == fs::metadata(folder.join(LOCK)).map(identity).ok()?;
    is_same.then_some(lock)
}

/// The last part of a path.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Kills what is in a control group. A runtime or an engine that was killed while it built a container leaves processes
/// that it no longer knows. They must not be frozen ([`thaw`]). Their end is not waited for any longer than to the given
/// moment.
pub(crate) fn kill_members(group: &Path, until: Instant) {
    for _ in 0..KILL_ROUNDS {
        let listed = members(group);
        if listed.is_empty() {
            return;
        }
        // Version 2 kills a whole group, since Linux 5.14 (cgroups(7)).
        if write(&group.join("cgroup.kill"), "1").is_err() {
            kill_listed(&listed, || members(group));
        }
        if Instant::now() >= until {
            return;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// Thaws a control group and those beneath it: SIGKILL does not end what version 1 has frozen, and a runtime that was
/// killed may have left it so. Version 2 lets the signal pass (cgroup-v2, "cgroup.freeze").
pub(crate) fn thaw(group: &Path) {
    // From above to below: a group is frozen as long as one above it is. Other hierarchies have no such file.
    write(&group.join("freezer.state"), "THAWED").ok();
    beneath(group).for_each(|inner| thaw(&inner));
}

/// The control groups in a control group.
fn beneath(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn members(group: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

/// Kills processes that are listed. A number may belong to another process by the time it is used, so each process is
/// held by a file descriptor first, and killed only if its number is then still listed.
fn kill_listed(listed: &[Pid], list_again: impl Fn() -> Vec<Pid>) {
    for some in listed.chunks(HELD_AT_ONCE) {
        let hold = |pid: &Pid| Some((*pid, rustix::process::pidfd_open(*pid, PidfdFlags::empty()).ok()?));
        let held: Vec<(Pid, OwnedFd)> = some.iter().filter_map(hold).collect();
        let still = list_again();
        for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            // One that has ended meanwhile cannot be killed.
            rustix::process::pidfd_send_signal(process, Signal::KILL).ok();
        }
    }
}

/// Kills the calls of a runtime whose state is in that directory. Those of a killed server go on: they would make a
/// container after everything of it was removed. A container that was not started yet shows the words of its call.
pub(crate) fn kill_calls(state: &Path, until: Instant) {
    for _ in 0..KILL_ROUNDS {
        let listed = calls(state);
        if listed.is_empty() || Instant::now() >= until {
            return;
        }
        kill_listed(&listed, || calls(state));
        std::thread::sleep(KILL_PAUSE);
    }
}

fn calls(state: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_call(*pid, state)).collect()
}

fn is_call(pid: Pid, state: &Path) -> bool {
    let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    words.split(|byte| *byte == 0).any(|word| word == state.as_os_str().as_bytes())
}

/// Writes to a file of a control group, if there is one.
fn write(file: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(text.as_bytes())
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
    for inner in beneath(directory) {
        remove_groups(&inner, members);
    }
    if let Members::Kill { until } = members {
        kill_members(directory, until);
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests;
