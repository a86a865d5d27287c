//! The build cache: compiled products, stored by the hash of everything that went into them.
//!
//! ```text
//! builds/                 0700, locked while something is added or removed
//!   <key>/manifest        hash of the rest, then hash, size and path of each file; locked (shared) while in use
//!   <key>/files/...       shown read-only to the program
//!   new-*                 being written or removed; the holder of the folder's lock may remove it
//! ```
//! An entry is written under a temporary name and renamed. It is therefore complete or absent, even if a server
//! is killed and however many servers share the folder. Each use reads every byte and compares it. An entry
//! that differs is not used, and the next compilation replaces it. Nothing in a sandbox can reach the folder:
//! programs see `files` through a read-only bind.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::FlockOperation;
use sandbox::{FailureKind, Failures};
use sha2::{Digest, Sha256};

use crate::request::is_plain_path;

const FOLDER: &str = "builds";
const MANIFEST: &str = "manifest";
const FILES: &str = "files";
const UNFINISHED: &str = "new-";
/// The most bytes of all entries. The least recently used entries go first.
const KEPT_BYTES_MAX: u64 = 1 << 30;
const ENTRIES_MAX: usize = 4096;
/// The most bytes that one compilation may leave.
pub(crate) const BUILD_BYTES_MAX: usize = 64 << 20;
pub(crate) const BUILD_FILES_MAX: usize = 2048;
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Makes temporary names unique within this process.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Hashes everything that a product depends on. Each field is hashed with its length, so that one field cannot
/// pass for two.
pub(crate) struct KeyMaker(Sha256);

impl KeyMaker {
    pub(crate) fn new() -> Self {
        let mut maker = Self(Sha256::new());
        maker.add("palisade build 1", env!("CARGO_PKG_VERSION").as_bytes());
        maker
    }

    /// Adds one dependency: its name and its content.
    pub(crate) fn add(&mut self, what: &str, content: &[u8]) {
        for part in [what.as_bytes(), content] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    pub(crate) fn key(self) -> Key {
        Key(hex(&self.0.finalize()))
    }
}

/// The hash of everything that a product depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// A product in use. It is not removed while this value exists.
#[derive(Debug)]
pub(crate) struct Build {
    /// Its files.
    pub(crate) files: PathBuf,
    /// Names the content of all files.
    pub(crate) digest: String,
    _in_use: File,
}

/// One file of a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BuildFile {
    /// A plain relative path.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// All products.
#[derive(Debug, Clone)]
pub(crate) struct Builds {
    folder: PathBuf,
    kept_bytes_max: u64,
    failures: Arc<Failures>,
}

/// The subject under which failures of the build cache are reported.
const SUBJECT: &str = "compiled programs";

impl Builds {
    pub(crate) fn new(state_dir: &Path, failures: &Arc<Failures>) -> Self {
        let failures = Arc::clone(failures);
        Self { folder: state_dir.join(FOLDER), kept_bytes_max: KEPT_BYTES_MAX, failures }
    }

    /// The product of that key, if it exists and every byte is as it was stored.
    pub(crate) fn recall(&self, key: &Key) -> Option<Build> {
        let entry = self.folder.join(&key.0);
        let manifest = File::open(entry.join(MANIFEST)).ok()?;
        rustix::fs::flock(&manifest, FlockOperation::NonBlockingLockShared).ok()?;
        // The entry may have been removed between opening and locking.
        let is_same =
            |named: fs::Metadata, open: fs::Metadata| (named.dev(), named.ino()) == (open.dev(), open.ino());
        if !is_same(fs::metadata(entry.join(MANIFEST)).ok()?, manifest.metadata().ok()?) {
            return None;
        }
        let files = entry.join(FILES);
        let digest = verify(&manifest, key, &files)?;
        // The time of the last use decides which entries stay. An outdated time does no harm.
        if let Err(error) = manifest.set_modified(SystemTime::now()) {
            tracing::debug!(reason = %error, "build_use_not_noted");
        }
        Some(Build { files, digest, _in_use: manifest })
    }

    /// Stores a product and returns it, read again from the cache.
    pub(crate) fn store(&self, key: &Key, files: &[BuildFile]) -> io::Result<Build> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let whole = File::open(&self.folder)?;
        rustix::fs::flock(&whole, FlockOperation::LockExclusive)?;
        self.sweep();
        // Another server was faster.
        if let Some(there) = self.recall(key) {
            return Ok(there);
        }
        let made = self.unfinished();
        let written = write_entry(&made, key, files);
        let entry = self.folder.join(&key.0);
        let placed = written.and_then(|()| {
            if entry.exists() {
                // The existing entry is damaged.
                fs::rename(&entry, self.unfinished())?;
            }
            fs::rename(&made, &entry)
        });
        if placed.is_err() {
            self.remove(&made);
        }
        placed?;
        self.make_room(&entry);
        self.recall(key).ok_or_else(|| io::Error::other("what was stored reads differently"))
    }

    /// Removes a folder. The next sweep retries what cannot be removed now.
    fn remove(&self, folder: &Path) {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.failures.report(FailureKind::Sweep, SUBJECT, &error);
            }
            _ => self.failures.recovered(FailureKind::Sweep, SUBJECT),
        }
    }

    fn unfinished(&self) -> PathBuf {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{UNFINISHED}{}-{number}", std::process::id()))
    }

    fn entries(&self) -> impl Iterator<Item = PathBuf> + use<> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// Removes what killed servers left unfinished, and what is no longer in use. The caller holds the folder's
    /// lock.
    fn sweep(&self) {
        let is_unfinished = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
        };
        for path in self.entries().filter(is_unfinished) {
            let in_use = File::open(path.join(MANIFEST)).is_ok_and(|manifest| {
                rustix::fs::flock(&manifest, FlockOperation::NonBlockingLockExclusive).is_err()
            });
            if !in_use {
                self.remove(&path);
            }
        }
    }

    /// Removes the least recently used entries until the rest fits. The caller holds the folder's lock.
    fn make_room(&self, newest: &Path) {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = self
            .entries()
            .filter_map(|path| {
                let used = fs::metadata(path.join(MANIFEST)).ok()?.modified().ok()?;
                Some((used, bytes_beneath(&path), path))
            })
            .collect();
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        let mut count = entries.len();
        for (_, size, path) in entries {
            if bytes <= self.kept_bytes_max && count <= ENTRIES_MAX {
                return;
            }
            let Ok(manifest) = File::open(path.join(MANIFEST)) else { continue };
            let is_free = rustix::fs::flock(&manifest, FlockOperation::NonBlockingLockExclusive).is_ok();
            if path == newest || !is_free {
                continue;
            }
            let away = self.unfinished();
            if fs::rename(&path, &away).is_ok() {
                self.remove(&away);
                (bytes, count) = (bytes.saturating_sub(size), count - 1);
            }
        }
    }
}

fn write_entry(folder: &Path, key: &Key, files: &[BuildFile]) -> io::Result<()> {
    let inside = folder.join(FILES);
    // Programs run as another user and must be able to read the files. The folder above is private.
    let open = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    open(&inside)?;
    let mut list = String::new();
    for file in files {
        if !is_plain_path(&file.path) || file.path.contains('\n') {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let place = inside.join(&file.path);
        if let Some(parent) = place.parent() {
            open(parent)?;
        }
        fs::write(&place, &file.content)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o555))?;
        let line = format!("{} {} {}\n", hex(&Sha256::digest(&file.content)), file.content.len(), file.path);
        list.push_str(&line);
    }
    for directory in directories_beneath(&inside) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    }
    let text = format!("{}\n{}\n{list}", key.0, hex(&Sha256::digest(format!("{}\n{list}", key.0))));
    fs::write(folder.join(MANIFEST), text)
}

/// The hash of the manifest, if exactly its files exist, with exactly those contents.
fn verify(manifest: &File, key: &Key, files: &Path) -> Option<String> {
    let mut text = String::new();
    manifest.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (named, rest) = text.split_once('\n')?;
    let (digest, list) = rest.split_once('\n')?;
    if named != key.0 || digest != hex(&Sha256::digest(format!("{named}\n{list}"))) {
        return None;
    }
    let mut count = 0;
    for line in list.lines() {
        let (digest, rest) = line.split_once(' ')?;
        let (size, path) = rest.split_once(' ')?;
        let place = files.join(path);
        let found = fs::symlink_metadata(&place).ok()?;
        let is_sound = is_plain_path(path) && found.is_file() && size.parse() == Ok(found.len());
        if !is_sound || digest != hex(&Sha256::digest(fs::read(&place).ok()?)) {
            return None;
        }
        count += 1;
    }
    (count > 0 && count == files_beneath(files)).then(|| digest.to_owned())
}

/// Counts everything except directories.
fn files_beneath(folder: &Path) -> usize {
    let others = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
    };
    directories_beneath(folder).iter().map(|directory| others(directory)).sum()
}

fn bytes_beneath(folder: &Path) -> u64 {
    let sizes = |folder: &Path| -> u64 {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.metadata().ok())
            .filter(|found| found.is_file())
            .map(|found| found.len())
            .sum()
    };
    directories_beneath(folder).iter().map(|directory| sizes(directory)).sum()
}

/// The folder and all directories in it.
fn directories_beneath(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while next < found.len() {
        for entry in fs::read_dir(&found[next]).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
            }
        }
        next += 1;
    }
    found
}

#[cfg(test)]
#[path = "builds_tests.rs"]
mod tests;
