//! Reads and replaces a client's file without ever losing it.
//!
//! A symbolic link is resolved to its target. The old content is saved as a backup beside the file. The new
//! content is written to a temporary file, synced, given the old mode and owner, and renamed over the old
//! file. If the file changed since it was read, nothing is written.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;

use super::SetupError;
use super::clients::Reach;

/// Maximum size of a client's file. Clients also keep history in it.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of backups within one second.
const BACKUPS_MAX: usize = 100;

/// A file that may not exist yet.
#[derive(Debug)]
pub(crate) struct Target {
    /// The path with symbolic links resolved.
    pub(crate) path: PathBuf,
    pub(crate) found: Option<ExistingFile>,
    reach: Reach,
}

/// The existing file.
#[derive(Debug)]
pub(crate) struct ExistingFile {
    pub(crate) text: String,
    metadata: Metadata,
}

/// Reads a file. A file of a project must not resolve outside the folder `project`.
pub(crate) fn read(path: &Path, reach: Reach, project: &Path) -> Result<Target, SetupError> {
    let unreadable = |reason: String| SetupError::Unreadable { path: path.to_owned(), reason };
    let resolved = resolve(path).map_err(|error| unreadable(error.to_string()))?;
    if reach == Reach::Project {
        let project = fs::canonicalize(project).map_err(|error| unreadable(error.to_string()))?;
        if !resolved.starts_with(project) {
            return Err(SetupError::OutsideProject { path: path.to_owned() });
        }
    }
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&resolved) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Target { path: resolved, found: None, reach });
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let metadata = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a plain file".to_owned()));
    }
    let mut bytes = Vec::new();
    let limited = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    limited.map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(SetupError::TooLarge { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8 text".to_owned()))?;
    Ok(Target { path: resolved, found: Some(ExistingFile { text, metadata }), reach })
}

/// Resolves symbolic links, even if the last parts of the path do not exist yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    for folder in path.ancestors() {
        match fs::symlink_metadata(folder) {
            Ok(_) => {
                let real = fs::canonicalize(folder).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => {
                        io::Error::other(format!("the link {} leads nowhere", folder.display()))
                    }
                    _ => error,
                })?;
                return Ok(missing.iter().rev().fold(real, |path, part| path.join(part)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                missing.extend(folder.file_name().map(ToOwned::to_owned));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

impl Target {
    /// Writes the new content; returns the path of the backup.
    pub(crate) fn write(&self, text: &str) -> Result<Option<PathBuf>, SetupError> {
        let failed = |source: io::Error| SetupError::Unwritable {
            path: self.path.clone(),
            reason: source.to_string(),
        };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if let Some(found) = &self.found {
            self.check_writable(found)?;
        }
        fs::create_dir_all(folder).map_err(failed)?;
        let neighbour = self.beside(&format!("palisade-new-{}", std::process::id()));
        let written = self.write_beside(&neighbour, text);
        if written.is_err() {
            fs::remove_file(&neighbour).ok();
        }
        let backup = written?;
        // Some file systems do not support this; the rename is already complete.
        File::open(folder).and_then(|folder| folder.sync_all()).ok();
        Ok(backup)
    }

    fn write_beside(&self, neighbour: &Path, text: &str) -> Result<Option<PathBuf>, SetupError> {
        let failed = |source: io::Error| SetupError::Unwritable {
            path: self.path.clone(),
            reason: source.to_string(),
        };
        self.create(neighbour, text.as_bytes()).map_err(failed)?;
        let backup = match &self.found {
            Some(found) => Some(self.back_up(found).map_err(failed)?),
            None => None,
        };
        if !self.is_unchanged() {
            // Nothing is replaced. The backup holds only earlier content of the same file.
            backup.iter().for_each(|path| drop(fs::remove_file(path)));
            return Err(SetupError::Changed { path: self.path.clone() });
        }
        self.rename(neighbour).map_err(failed)?;
        Ok(backup)
    }

    /// A file without write permission is not replaced, even if root could do it.
    fn check_writable(&self, found: &ExistingFile) -> Result<(), SetupError> {
        const OWNER_MAY_WRITE: u32 = 0o200;
        let path = self.path.clone();
        if found.metadata.mode() & OWNER_MAY_WRITE == 0 {
            return Err(SetupError::ReadOnly { path });
        }
        if found.metadata.nlink() > 1 {
            let reason = "it has a second name (a hard link), which would keep the old content".to_owned();
            return Err(SetupError::Unwritable { path, reason });
        }
        match rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK) {
            Ok(()) => Ok(()),
            Err(_) => Err(SetupError::ReadOnly { path }),
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(suffix);
        self.path.with_file_name(name)
    }

    /// Creates a file with the mode and owner of the old one. Without an old file, only the user can read it.
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mode = match (&self.found, self.reach) {
            (Some(ExistingFile { metadata, .. }), _) => {
                let own = file.metadata()?;
                if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
                    std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()))
                        .map_err(|_| io::Error::other("its owner and group could not be kept"))?;
                }
                metadata.mode() & 0o7777
            }
            (None, Reach::User) => 0o600,
            (None, Reach::Project) => 0o644,
        };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn back_up(&self, found: &ExistingFile) -> io::Result<PathBuf> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for attempt in 1..=BACKUPS_MAX {
            let again = if attempt == 1 { String::new() } else { format!("-{attempt}") };
            let path = self.beside(&format!("palisade-backup-{}{again}", timestamp(now)));
            match self.create(&path, found.text.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                done => return done.map(|()| path),
            }
        }
        Err(io::Error::other("no name for a backup is free"))
    }

    fn is_unchanged(&self) -> bool {
        let identity =
            |found: &Metadata| (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
        match (&self.found, fs::symlink_metadata(&self.path)) {
            (Some(before), Ok(now)) => identity(&before.metadata) == identity(&now),
            (None, Err(error)) => error.kind() == ErrorKind::NotFound,
            _ => false,
        }
    }

    fn rename(&self, neighbour: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        if self.found.is_none() {
            match renameat_with(CWD, neighbour, CWD, &self.path, RenameFlags::NOREPLACE) {
                // Not every file system supports the flag; the name was free a moment ago.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                done => return Ok(done?),
            }
        }
        fs::rename(neighbour, &self.path)
    }
}

/// Seconds since 1970 as `20260131-235959`, in UTC. A time without a date becomes the epoch.
fn timestamp(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    moment.unwrap_or_default().format("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_dates() {
        assert_eq!(timestamp(0), "19700101-000000");
        assert_eq!(timestamp(951_782_400), "20000229-000000");
        assert_eq!(timestamp(1_709_251_199), "20240229-235959");
        assert_eq!(timestamp(1_767_225_599), "20251231-235959");
    }
}
