//! Removes the files of closed sandboxes, and folders that have no record. `sandboxes` calls it.
//!
//! A hostile program made these files. Directories may be nested deeper than any stack and may have no
//! permissions. The removal therefore does not recurse: it moves the entries of each directory up to the top,
//! so that every directory is empty when its turn comes.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use sandbox::{FailureKind, Failures};

use super::id::SandboxId;

/// The suffix of folders in removal. The next start removes every folder that has it.
const TRASH: &str = ".removed";
/// The subject under which failures of the removal are reported.
const SUBJECT: &str = "files of closed sandboxes";

/// Renames a folder at once and removes it in the background, so that the answer does not wait for it.
pub(super) fn remove_later(folder: PathBuf, failures: &Arc<Failures>) {
    let trash = folder.with_extension(&TRASH[1..]);
    // After the rename, no sandbox has this folder. If this server does not remove it, the next one does.
    if let Err(error) = std::fs::rename(&folder, &trash) {
        return failures.report(FailureKind::Sweep, SUBJECT, &error);
    }
    let failures = Arc::clone(failures);
    let work = move || tell(&failures, remove(&trash));
    if tokio::runtime::Handle::try_current().is_ok() {
        drop(tokio::task::spawn_blocking(work));
    } else {
        work();
    }
}

/// Removes every folder of a sandbox that the store does not know. The folder exists before the record, so the
/// folder of a sandbox that another server is opening may be unknown. Recent folders are therefore kept.
pub(super) fn remove_strangers(folder: PathBuf, known: HashSet<String>, failures: Arc<Failures>) {
    drop(tokio::task::spawn_blocking(move || {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => return tell(&failures, Err(error)),
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_stranger = SandboxId::parse(&name).is_some() && !known.contains(&name) && is_old(&entry);
            if is_stranger {
                // If this fails, the removal below finds nothing and reports that.
                std::fs::rename(entry.path(), entry.path().with_extension(&TRASH[1..])).ok();
            }
            if is_stranger || name.ends_with(TRASH) {
                tell(&failures, remove(&entry.path().with_extension(&TRASH[1..])));
            }
        }
    }));
}

fn tell(failures: &Failures, removed: io::Result<()>) {
    match removed {
        Ok(()) => failures.recovered(FailureKind::Sweep, SUBJECT),
        Err(error) => failures.report(FailureKind::Sweep, SUBJECT, &error),
    }
}

/// Whether the folder is old enough that its record would exist.
fn is_old(entry: &std::fs::DirEntry) -> bool {
    const MAKING: std::time::Duration = std::time::Duration::from_secs(60);
    let made = entry.metadata().and_then(|found| found.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MAKING))
}

/// Removes a directory and everything in it.
fn remove(top: &PathBuf) -> io::Result<()> {
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
    use crate::test_events::Heard;

    #[test]
    fn files_that_cannot_be_removed_are_told_without_their_path_and_counted() {
        let heard = Heard::begin();
        let failures = Arc::<Failures>::default();
        (0..2).for_each(|_| remove_later(PathBuf::from("/nonexistent/sbx_1"), &failures));
        assert_eq!(failures.counts()[FailureKind::Sweep as usize], 2);
        let told = heard.events();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("sweep_failed subject=files of closed sandboxes reason=No such file"),
            "{told:?}"
        );
        assert!(!told[0].contains("nonexistent"), "{told:?}");
    }

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
