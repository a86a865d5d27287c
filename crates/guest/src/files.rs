//! Files of the workspace, opened relative to its file descriptor.
//!
//! The program runs beside this code and may swap any directory for a link at any time. openat2 with
//! RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS keeps such a race inside the workspace. Only regular files are
//! read.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use wire::{CHUNK_BYTES_MAX, FileEntry, FileKind, PATH_BYTES_MAX};

const WORKSPACE: &str = "/workspace";
const DEPTH_MAX: usize = 64;

pub(crate) fn put(path: &str, append: bool, data: &[u8]) -> io::Result<()> {
    let path = checked(path)?;
    let root = workspace()?;
    if !append {
        make_parents(&root, path)?;
    }
    // openat2 refuses permission bits for a file that it does not create.
    let (how, mode) = match append {
        true => (OFlags::APPEND, Mode::empty()),
        false => (OFlags::CREATE | OFlags::TRUNC, Mode::from_raw_mode(0o644)),
    };
    let flags = how | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = beneath(&root, path, flags, mode)?;
    regular(&file)?;
    let mut rest = data;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

pub(crate) fn read(path: &str, offset: u64, bytes: u32) -> io::Result<Vec<u8>> {
    let path = checked(path)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = beneath(&workspace()?, path, flags, Mode::empty())?;
    regular(&file)?;
    let mut data = vec![0_u8; (bytes as usize).min(CHUNK_BYTES_MAX)];
    let count = rustix::io::pread(&file, &mut data, offset)?;
    data.truncate(count);
    Ok(data)
}

/// Everything beneath the workspace, each directory before its contents, at most `entries_max` entries.
pub(crate) fn list(entries_max: u32) -> io::Result<Vec<FileEntry>> {
    let root = workspace()?;
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let place = if directory.as_os_str().is_empty() { Path::new(".") } else { directory.as_path() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that has vanished or become unreadable meanwhile is not listed.
        let Ok(descriptor) = beneath(&root, place, flags, Mode::empty()) else { continue };
        for entry in Dir::read_from(&descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if found.len() >= entries_max as usize {
                return Ok(found);
            }
            let Ok(stat) = rustix::fs::statat(&descriptor, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let path = directory.join(String::from_utf8_lossy(name).as_ref());
            let kind = kind_of(stat.st_mode);
            if kind == FileKind::Directory && path.components().count() < DEPTH_MAX {
                open.push(path.clone());
            }
            found.push(FileEntry {
                path: path.to_string_lossy().into_owned(),
                kind,
                size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified_ns: stat
                    .st_mtime
                    .saturating_mul(1_000_000_000)
                    .saturating_add(stat.st_mtime_nsec as i64),
            });
        }
    }
    Ok(found)
}

fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

fn workspace() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, WORKSPACE, flags, Mode::empty())?)
}

fn beneath(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(root, path, flags, mode, resolve) {
        // gVisor has no such call.
        Err(rustix::io::Errno::NOSYS) => walk_beneath(root, path, flags, mode),
        opened => Ok(opened?),
    }
}

/// The same name by name. Every part of the path is a plain name (see [`checked`]) or `.`, and no link is followed, so
/// each step stays beneath the one before.
fn walk_beneath(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let name = path.file_name().map_or(Path::new("."), Path::new);
    let mut directory = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        directory = rustix::fs::openat(&directory, Path::new(&part), above, Mode::empty())?;
    }
    Ok(rustix::fs::openat(&directory, name, flags | OFlags::NOFOLLOW, mode)?)
}

fn make_parents(root: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut walked = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        let parent = if walked.as_os_str().is_empty() { Path::new(".") } else { walked.as_path() };
        let directory =
            beneath(root, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        match rustix::fs::mkdirat(&directory, Path::new(&part), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        walked.push(part);
    }
    Ok(())
}

fn regular(file: &OwnedFd) -> io::Result<()> {
    match FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// A relative path of plain names. Anything else is refused before the kernel sees it.
pub(crate) fn checked(path: &str) -> io::Result<&Path> {
    let refused = || io::Error::from(io::ErrorKind::InvalidInput);
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0') {
        return Err(refused());
    }
    let path = Path::new(path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain { Ok(path) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_no_link_is_followed_either() {
        let folder = harness::TestFolder::new();
        folder.file("deep/er/file", "inside");
        folder.file("beside", "outside");
        std::os::unix::fs::symlink("/etc", folder.path().join("deep/away")).unwrap();
        std::os::unix::fs::symlink("../beside", folder.path().join("deep/link")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, folder.path().join("deep"), flags, Mode::empty()).unwrap();
        let open = |path: &str| walk_beneath(&root, Path::new(path), OFlags::RDONLY, Mode::empty());
        for good in [".", "er", "er/file"] {
            assert!(open(good).is_ok(), "{good}");
        }
        for bad in ["away", "away/passwd", "link", "er/none"] {
            assert!(open(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_plain_relative_paths_pass() {
        for good in ["a", "a/b.txt", "ünïcode/ñ", "a b", "..."] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in ["", "/etc/passwd", "..", "../x", "a/../../x", "./a/..", "a\0b"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    /// A seeded stream of hostile joins: no accepted path has a component that leads upwards or to the root.
    #[test]
    fn random_joins_never_lead_out() {
        let parts =
            ["..", ".", "", "/", "a", "b\0", "//", "...", "ä", "a/..", "../", "%2e%2e", "\\..\\", "~"];
        let mut chance = harness::Chance::new(0x9e37_79b9_7f4a_7c15);
        for _ in 0..200_000 {
            crate::checks::file_path(&chance.joined(&parts, 6));
        }
    }
}
