//! Removes the files of closed sandboxes, and folders that have no record. `store` calls it.
//!
//! A hostile program made these files. Directories may be nested deeper than any stack and may have no
//! permissions. The removal therefore does not recurse: it moves the entries of each directory up to the top,
//! so that every directory is empty when its turn comes.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use sandbox::workspace::{NotHeld, WorkspaceRef};
use sandbox::{FailureKind, Failures};

use super::store::{LOCK, WORKSPACE, lock};

/// The suffix of folders in removal. The next start removes every folder that has it.
const TRASH: &str = ".removed";
/// The subject under which failures of the removal are reported.
pub(super) const SUBJECT: &str = "files of closed sandboxes";
/// A folder exists before its record. It is kept for this long without one.
const MAKING: Duration = Duration::from_secs(60);

/// Renames a folder, so that no sandbox has it any more. If this server does not remove it, the next one does.
pub(super) fn set_aside(folder: &Path) -> io::Result<PathBuf> {
    let trash = folder.with_extension(&TRASH[1..]);
    fs::rename(folder, &trash)?;
    Ok(trash)
}

/// Removes every folder of a workspace whose id is not in `known`, and what earlier removals left. `now` is
/// when the ids were looked up: a folder that was made shortly before may have got its record since. A folder
/// that another server holds is in use, whatever its age.
pub(super) fn remove_strangers(folder: &Path, known: &HashSet<String>, now: SystemTime, failures: &Failures) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return tell(failures, Err(error)),
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(TRASH) {
            remove_told(&entry.path(), failures);
            continue;
        }
        if known.contains(&name) || !is_workspace(&entry, name) || !is_old(&entry, now) {
            continue;
        }
        // While the lock is held here, no server begins to use the folder.
        let _held = match lock(&entry.path()) {
            Ok(held) => held,
            // In use, or removed by another server meanwhile.
            Err(NotHeld::Elsewhere | NotHeld::Missing | NotHeld::Unavailable { .. }) => continue,
            Err(NotHeld::Broken(reason)) => {
                tell(failures, Err(io::Error::other(reason)));
                continue;
            }
        };
        match set_aside(&entry.path()) {
            Ok(trash) => remove_told(&trash, failures),
            Err(error) => tell(failures, Err(error)),
        }
    }
}

/// Removes a folder that was set aside, and reports a failure.
pub(super) fn remove_told(trash: &Path, failures: &Failures) {
    tell(failures, remove(trash));
}

fn tell(failures: &Failures, removed: io::Result<()>) {
    match removed {
        Ok(()) => failures.recovered(FailureKind::Sweep, SUBJECT),
        Err(error) => failures.report(FailureKind::Sweep, SUBJECT, &error),
    }
}

/// Whether this is the folder of a workspace: a directory with a plain name that contains nothing else.
fn is_workspace(entry: &DirEntry, id: String) -> bool {
    let is_plain = WorkspaceRef { id, identity: 0 }.plain_id().is_ok();
    let is_own = |inner: io::Result<DirEntry>| {
        inner.is_ok_and(|inner| inner.file_name() == LOCK || inner.file_name() == WORKSPACE)
    };
    is_plain
        && entry.file_type().is_ok_and(|kind| kind.is_dir())
        && fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.all(is_own))
}

/// Whether the folder is old enough that its record would exist.
fn is_old(entry: &DirEntry, now: SystemTime) -> bool {
    let made = entry.metadata().and_then(|found| found.modified());
    made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > MAKING))
}

/// Removes a directory and everything in it.
fn remove(top: &Path) -> io::Result<()> {
    let directory = enter(CWD, top.as_os_str().as_encoded_bytes())?;
    let mut moved: u64 = 0;
    let mut queue = vec![Vec::new()];
    while let Some(name) = queue.pop() {
        let inner =
            if name.is_empty() { rustix::io::dup(&directory)? } else { enter(directory.as_fd(), &name)? };
        for (child, is_directory) in children(&inner)? {
            if !is_directory {
                rustix::fs::unlinkat(&inner, child.as_slice(), AtFlags::empty())?;
                continue;
            }
            if name.is_empty() {
                queue.push(child);
                continue;
            }
            let up = loop {
                let up = format!(".up-{moved}").into_bytes();
                moved += 1;
                if rustix::fs::statat(&directory, up.as_slice(), AtFlags::SYMLINK_NOFOLLOW).is_err() {
                    break up;
                }
            };
            // An unprivileged user can move a directory only if it may write to that directory, because the
            // move changes its `..` entry.
            drop(enter(inner.as_fd(), &child)?);
            rustix::fs::renameat(&inner, child.as_slice(), &directory, up.as_slice())?;
            queue.push(up);
        }
        if !name.is_empty() {
            rustix::fs::unlinkat(&directory, name.as_slice(), AtFlags::REMOVEDIR)?;
        }
    }
    std::fs::remove_dir(top)
}

fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) => {
            // An unprivileged user cannot read a directory whose permissions its sandbox removed, but may
            // restore them. It does so by file descriptor, so that a later change of the name has no effect.
            let look = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let place = rustix::fs::openat(parent, name, look, Mode::empty())?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)?;
            Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
        }
        opened => {
            let opened = opened?;
            // Removing entries requires write permission on the directory.
            rustix::fs::fchmod(&opened, Mode::RWXU)?;
            Ok(opened)
        }
    }
}

fn children(directory: &OwnedFd) -> io::Result<Vec<(Vec<u8>, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        found.push((name.to_vec(), FileType::from_raw_mode(stat.st_mode).is_dir()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let top = std::env::temp_dir().join(format!("palisade-removal-{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        std::fs::write(top.join(".up-0"), "in the way").unwrap();
        let mut inner = enter(CWD, top.as_os_str().as_encoded_bytes()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&inner, "deeper", Mode::RWXU).unwrap();
            let next = enter(inner.as_fd(), b"deeper").unwrap();
            rustix::fs::fchmod(&inner, Mode::empty()).unwrap();
            inner = next;
        }
        std::os::unix::fs::symlink("/usr", top.join("link")).unwrap();
        remove(&top).unwrap();
        assert!(!top.exists() && PathBuf::from("/usr/bin").exists());
    }
}
