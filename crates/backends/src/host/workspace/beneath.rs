//! Opens files relative to a file descriptor. This is the only module that resolves names to files.
//!
//! `RESOLVE_BENEATH` and related flags (openat2(2), Linux 5.6) apply to every component of a path, and hold
//! against concurrent renames. Where the kernel lacks them, nothing is opened at all.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use sandbox::workspace::FileError;

use super::Owner;
use super::errno::told;

/// How often to retry when the kernel reports that a parent directory was moved during the lookup.
const TRIES_MAX: usize = 16;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Do not follow a link as the last name, do not wait for the other end of a pipe, do not acquire a terminal,
/// close on exec.
const CAREFUL: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY_MODE: Mode =
    Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

fn open(directory: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(directory.as_fd(), path, flags, mode, RESOLVE) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES_MAX => tries += 1,
            opened => return opened,
        }
    }
}

/// Opens a directory for reading.
pub(super) fn directory(above: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open(above, path, OFlags::RDONLY | OFlags::DIRECTORY | CAREFUL, Mode::empty())
}

/// Opens a regular file with these flags. The type is checked before the real open, because opening some
/// devices already has an effect. The second step opens the same file that was checked.
pub(super) fn regular(above: impl AsFd, path: &Path, how: OFlags) -> Result<(OwnedFd, Stat), FileError> {
    let place = open(above, path, LOOK, Mode::empty()).map_err(told)?;
    let stat = rustix::fs::fstat(&place).map_err(told)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileError::IsDirectory),
        FileType::Symlink => return Err(told(Errno::LOOP)),
        _ => return Err(FileError::NotRegular),
    }
    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    // The last name here is the magic link of the file descriptor in /proc, which must be followed.
    let flags = how | (CAREFUL - OFlags::NOFOLLOW);
    Ok((rustix::fs::openat(CWD, own, flags, Mode::empty()).map_err(told)?, stat))
}

/// Returns the metadata of a path without opening it.
pub(super) fn look(above: impl AsFd, path: &Path) -> Result<Stat, Errno> {
    rustix::fs::fstat(open(above, path, LOOK, Mode::empty())?)
}

/// The target of a link, which is not followed.
pub(super) fn link_target(above: impl AsFd, path: &Path) -> Result<Vec<u8>, Errno> {
    let link = open(above, path, LOOK, Mode::empty())?;
    Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
}

/// Creates a file. The name must not exist.
pub(super) fn new_file(above: impl AsFd, name: &str, mode: Mode) -> Result<OwnedFd, Errno> {
    open(above, Path::new(name), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | CAREFUL, mode)
}

/// Opens the directory one level below. Creates it for its owner if it does not exist.
pub(super) fn entered(above: impl AsFd, name: &str, owner: Option<Owner>) -> Result<OwnedFd, FileError> {
    let path = Path::new(name);
    let folder = LOOK | OFlags::DIRECTORY;
    let found = match open(above.as_fd(), path, folder, Mode::empty()) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(above.as_fd(), name, DIRECTORY_MODE) {
                // If the directory was created concurrently, the result is the same.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(told(error)),
            }
            let made = open(above, path, folder, Mode::empty()).map_err(told)?;
            own(&made, owner).map_err(told)?;
            return Ok(made);
        }
        found => found,
    };
    match found {
        Err(Errno::NOTDIR) => Err(FileError::BadPath("a file or link is where a directory should be".into())),
        found => found.map_err(told),
    }
}

/// Gives a file or directory to the sandbox's user, by its file descriptor.
pub(super) fn own(file: impl AsFd, owner: Option<Owner>) -> Result<(), Errno> {
    let Some(Owner { uid, gid }) = owner else { return Ok(()) };
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}

/// Restores the owner's permissions of a directory that cannot be opened for reading.
pub(super) fn open_up(path: &Path) -> Result<(), Errno> {
    let place = rustix::fs::openat(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) | Mode::RWXU;
    // Through the file descriptor in /proc: a descriptor opened with O_PATH has no other way.
    rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), mode)
}

/// Restores the owner's permissions of an open directory, if the program removed them.
pub(super) fn open_up_directory(directory: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory.as_fd())?.st_mode);
    if mode.contains(Mode::RWXU) { Ok(()) } else { rustix::fs::fchmod(directory, mode | Mode::RWXU) }
}
