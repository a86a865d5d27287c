//! Writes a file to a draft beside it. The draft takes the file's name when it is complete.
//!
//! ```text
//! measure the workspace -> create and own folders -> draft (new name, EXCL) -> pieces, within the quota -> rename
//! ```
//! The program can see the draft and modify it, but it can damage only its own file. The writer holds a lock on
//! its draft (flock(2)), which the kernel releases when the server dies. A draft without a lock is abandoned.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use sandbox::BoxFuture;
use sandbox::workspace::{EntryKind, FileError, FilePath, Upload, Written};

use super::errno::told;
use super::walk::{Then, usage, walk};
use super::{Root, Work, beneath, blocking};

/// The name prefix of drafts.
pub(super) const DRAFT_PREFIX: &str = ".palisade-draft-";
const DRAFT_RANDOM_BYTES: usize = 8;
/// The most drafts removed in one call.
const ABANDONED_MAX: usize = 1000;
const NEW_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);
const PERMISSIONS: u32 = 0o777;
/// The workspace is measured again after this many bytes, because the program inside writes too.
const MEASURE_BYTES: u64 = 4 << 20;

/// A file that arrives piece by piece. If it is dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub(super) struct HostUpload {
    /// `None` while a piece is being written, and after a failure.
    draft: Option<Draft>,
}

impl HostUpload {
    pub(super) fn begin(
        root: Arc<Root>,
        path: &FilePath,
        bytes_max: u64,
        announced: Option<u64>,
    ) -> Result<Self, FileError> {
        let draft = Draft::begin(root, path, bytes_max, announced.unwrap_or(0))?;
        Ok(Self { draft: Some(draft) })
    }
}

impl Upload for HostUpload {
    fn write(&mut self, piece: Vec<u8>) -> BoxFuture<'_, Result<(), FileError>> {
        Box::pin(async move {
            let mut draft = self.draft.take().ok_or(FileError::Disturbed)?;
            let draft = blocking(Work::Quick, move || draft.write(&piece).map(|()| draft)).await?;
            self.draft = Some(draft);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Written, FileError>> {
        Box::pin(async move {
            let draft = self.draft.take().ok_or(FileError::Disturbed)?;
            blocking(Work::Quick, move || draft.place()).await
        })
    }
}

pub(super) fn whole(root: &Arc<Root>, path: &FilePath, content: &[u8]) -> Result<Written, FileError> {
    let size = content.len() as u64;
    let mut draft = Draft::begin(Arc::clone(root), path, size, size)?;
    draft.write(content)?;
    draft.place()
}

/// Appends in place, so that a program that holds the file open sees it grow. Refuses a file with several
/// names, because it is unclear which one is meant.
pub(super) fn append(root: &Arc<Root>, path: &FilePath, content: &[u8]) -> Result<Written, FileError> {
    let how = OFlags::WRONLY | OFlags::APPEND;
    let (file, stat) = match beneath::regular(&root.directory, path.as_path(), how) {
        Err(FileError::NotFound) => return whole(root, path, content),
        found => found?,
    };
    if stat.st_nlink > 1 {
        return Err(FileError::BadPath("the file has several names".into()));
    }
    if left(root, 0)? < content.len() as u64 {
        return Err(FileError::DiskFull);
    }
    let mut file = File::from(file);
    file.write_all(content).map_err(told)?;
    Ok(Written { size_bytes: file.metadata().map_err(told)?.len() })
}

/// How many bytes may still be written, together with this many new names.
fn left(root: &Root, names: usize) -> Result<u64, FileError> {
    let used = usage(root)?;
    if !used.is_complete || used.inodes + names as u64 > root.quota.inodes {
        return Err(FileError::DiskFull);
    }
    Ok(root.quota.bytes.saturating_sub(used.bytes))
}

/// A file that is being written.
#[derive(Debug)]
struct Draft {
    root: Arc<Root>,
    folder: OwnedFd,
    /// The final name; the next field is the current name.
    name: String,
    draft_name: String,
    file: File,
    written: u64,
    /// The most bytes by its link or its caller.
    bytes_max: u64,
    /// The most bytes by the quota.
    room: u64,
    measured_at: u64,
    is_placed: bool,
}

impl Draft {
    fn begin(root: Arc<Root>, path: &FilePath, bytes_max: u64, announced: u64) -> Result<Self, FileError> {
        if announced > bytes_max {
            return Err(FileError::TooLarge { bytes_max });
        }
        let names = path.folders().count() + 1;
        let room = match left(&root, names) {
            Ok(room) if announced <= room => room,
            // What killed servers left behind must not count for the quota.
            Ok(_) | Err(FileError::DiskFull) if remove_abandoned(&root)? > 0 => left(&root, names)?,
            room => room?,
        };
        if announced > room {
            return Err(FileError::DiskFull);
        }
        let mut folder = rustix::io::fcntl_dupfd_cloexec(&root.directory, 0).map_err(told)?;
        for name in path.folders() {
            folder = beneath::entered(&folder, name, root.owner)?;
        }
        let mode = mode_of(&folder, path.name())?;
        let draft_name = draft_name()?;
        let file = beneath::new_file(&folder, &draft_name, Mode::RUSR | Mode::WUSR).map_err(told)?;
        let file = File::from(file);
        let name = path.name().to_owned();
        let (owner, measured_at, is_placed) = (root.owner, 0, false);
        // From here on, any failure removes the draft. Only the program inside can hold the lock.
        let draft = Self {
            root,
            folder,
            name,
            draft_name,
            file,
            written: 0,
            bytes_max,
            room,
            measured_at,
            is_placed,
        };
        flock(&draft.file, FlockOperation::NonBlockingLockExclusive).map_err(|_| FileError::Disturbed)?;
        beneath::own(&draft.file, owner).map_err(told)?;
        rustix::fs::fchmod(&draft.file, mode).map_err(told)?;
        Ok(draft)
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), FileError> {
        let wanted = self.written + piece.len() as u64;
        if wanted > self.bytes_max {
            return Err(FileError::TooLarge { bytes_max: self.bytes_max });
        }
        if wanted - self.measured_at > MEASURE_BYTES {
            self.room = self.written.saturating_add(left(&self.root, 0)?);
            self.measured_at = self.written;
        }
        if wanted > self.room {
            return Err(FileError::DiskFull);
        }
        self.file.write_all(piece).map_err(told)?;
        self.written = wanted;
        Ok(())
    }

    fn place(mut self) -> Result<Written, FileError> {
        match rustix::fs::renameat(&self.folder, &self.draft_name, &self.folder, &self.name) {
            Ok(()) => self.is_placed = true,
            // Only the program inside removes a draft.
            Err(Errno::NOENT) => return Err(FileError::Disturbed),
            Err(error) => return Err(told(error)),
        }
        Ok(Written { size_bytes: self.written })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            // If the draft is gone or was replaced, it no longer belongs to the server.
            if let Err(error) = rustix::fs::unlinkat(&self.folder, &self.draft_name, AtFlags::empty()) {
                tracing::debug!(reason = %error, "draft_not_removed");
            }
        }
    }
}

/// Removes the drafts of servers that were killed during a write. Drafts that are being written stay.
pub(super) fn remove_abandoned(root: &Root) -> Result<usize, FileError> {
    let mut drafts = Vec::new();
    walk(beneath::directory(&root.directory, Path::new(".")).map_err(told)?, |found| {
        let is_draft = is_draft(found.path) && found.kind == EntryKind::File;
        if let Some(path) = std::str::from_utf8(found.path).ok().filter(|_| is_draft) {
            drafts.extend(FilePath::parse(path));
        }
        if drafts.len() == ABANDONED_MAX { Then::Stop } else { Then::Enter }
    })?;
    let mut removed = 0;
    for path in drafts {
        let above = path.as_path().parent().filter(|above| !above.as_os_str().is_empty());
        // The program moved or removed a directory that can no longer be reached.
        let Ok(folder) = beneath::directory(&root.directory, above.unwrap_or(Path::new("."))) else {
            continue;
        };
        let name = path.name();
        let Ok((draft, _)) = beneath::regular(&folder, Path::new(name), OFlags::RDONLY) else { continue };
        if flock(&draft, FlockOperation::NonBlockingLockExclusive).is_ok() {
            removed += usize::from(rustix::fs::unlinkat(&folder, name, AtFlags::empty()).is_ok());
        }
    }
    Ok(removed)
}

/// Whether this is the path of a draft.
pub(super) fn is_draft(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(DRAFT_PREFIX.as_bytes()))
}

/// The permissions of the replaced file, or those of a new one.
fn mode_of(folder: impl AsFd, name: &str) -> Result<Mode, FileError> {
    match beneath::look(folder, Path::new(name)) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Mode::from_raw_mode(stat.st_mode & PERMISSIONS)),
            FileType::Directory => Err(FileError::IsDirectory),
            _ => Ok(NEW_FILE_MODE),
        },
        // A link is replaced like a file, and its target left alone.
        Err(Errno::NOENT | Errno::LOOP) => Ok(NEW_FILE_MODE),
        Err(error) => Err(told(error)),
    }
}

fn draft_name() -> Result<String, FileError> {
    let mut random = [0_u8; DRAFT_RANDOM_BYTES];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(told)?;
    let mut name = DRAFT_PREFIX.to_owned();
    for byte in random {
        // Writing to a string does not fail.
        write!(name, "{byte:02x}").unwrap_or_default();
    }
    Ok(name)
}
