//! Small operations on the files of the store: private folders, atomic writes, temporary names, digests as text.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

/// The prefix of what is being written or removed.
pub(crate) const UNFINISHED: &str = "new-";

/// Makes temporary names unique within this process.
static MADE: AtomicU64 = AtomicU64::new(0);

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Whether it is a digest as text, of that many bytes.
pub(crate) fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == bytes * 2 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Creates a folder that only the server's user can enter, and those above it.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A new name in a folder. Whoever finds it later and can lock it may remove it.
pub(crate) fn unfinished(folder: &Path) -> PathBuf {
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()))
}

/// Creates a file under a temporary name, locked while it is written.
pub(crate) fn draft(folder: &Path) -> io::Result<(PathBuf, File)> {
    private_folder(folder)?;
    let path = unfinished(folder);
    let file = OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(&path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok((path, file))
}

/// Writes a whole file. A reader sees the old one or the new one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let (made, mut file) = draft(folder)?;
    let written = file.write_all(content).and_then(|()| fs::rename(&made, path));
    if written.is_err() {
        fs::remove_file(&made).ok();
    }
    written
}

/// Takes a lock on a file that exists only to be locked.
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        private_folder(folder)?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether a name still leads to the open file.
pub(crate) fn is_named(path: &Path, file: &File) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Removes drafts of files that no process writes any more.
pub(crate) fn sweep_drafts(folder: &Path) {
    sweep_unlocked(folder, UNFINISHED);
}

/// Removes files whose names begin like that and that no process holds a lock of.
pub(crate) fn sweep_unlocked(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let is_free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // The name may be that of a newer file by now.
        if is_free && is_named(&entry.path(), &file) {
            fs::remove_file(entry.path()).ok();
        }
    }
}
