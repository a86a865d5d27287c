//! Layers by content, and the index from requirement sets to layers.
//!
//! ```text
//! packages/                    0700
//!   layers/                    locked while something is added or removed
//!     <digest>/manifest.json   what the layer holds; locked (shared) while in use
//!     <digest>/bom.json        inventory (CycloneDX)
//!     <digest>/files/...       shown read-only to programs
//!     new-*                    being written (its `lock` is held) or removed
//!   sets/<key>.json            requirements -> digest
//!   locks/<key>                held while a set is being installed
//! ```
//! A layer is written under a temporary name and renamed: it is complete or absent.

mod harvest;
mod manifest;
mod room;
mod writers;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

pub(crate) use self::harvest::{Form, Harvest, Harvested};
pub(crate) use self::manifest::{FORMAT, LayerPackage, Manifest, SetEntry};
pub(crate) use self::room::{bytes_beneath, make_room};
use crate::files::{
    UNFINISHED, is_hex, is_named, lock_file, private_folder, replace, sweep_unlocked, unfinished,
};

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const BOM: &str = "bom.json";
pub(crate) const FILES: &str = "files";
const LOCK: &str = "lock";
/// The largest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// The most manifests that are kept in memory.
const KNOWN_MAX: usize = 256;

/// Keeps a layer from being removed, by any server.
#[derive(Debug)]
pub(crate) struct InUse {
    _manifest: File,
}

/// A layer in use.
pub(crate) struct Used {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) files: PathBuf,
    pub(crate) in_use: InUse,
}

/// The right to install one set. No other server installs it meanwhile.
pub(crate) struct SetLock {
    path: PathBuf,
    _lock: File,
}

impl SetLock {
    /// Takes the lock of an open file. Its last holder removes it: a server that opened it before has the lock of nothing.
    fn take(path: PathBuf, lock: File) -> Option<Self> {
        let is_held = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        (is_held && is_named(&path, &lock)).then(|| Self { path, _lock: lock })
    }
}

impl Drop for SetLock {
    fn drop(&mut self) {
        // Still locked: a server that waits for it notices that its name is gone.
        fs::remove_file(&self.path).ok();
    }
}

/// All layers of a state directory.
pub(crate) struct Layers {
    folder: PathBuf,
    sets: PathBuf,
    locks: PathBuf,
    known: Mutex<HashMap<String, Arc<Manifest>>>,
}

/// A layer that is being written.
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Draft {
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join(FILES)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It has another name if it became a layer.
        remove_tree(&self.path);
    }
}

/// Removes a folder. A later sweep retries what cannot be removed now.
pub(crate) fn remove_tree(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(reason = %error, "layer_not_removed");
        }
        _ => {}
    }
}

impl Layers {
    /// The layers below the folder of packages.
    pub(crate) fn new(packages: &Path) -> Self {
        Self {
            folder: packages.join("layers"),
            sets: packages.join("sets"),
            locks: packages.join("locks"),
            known: Mutex::default(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn sets(&self) -> &Path {
        &self.sets
    }

    /// Begins to install a set. `None` while another server does.
    pub(crate) fn lock_set(&self, key: &str) -> io::Result<Option<SetLock>> {
        let path = self.locks.join(key);
        let lock = lock_file(&path)?;
        Ok(SetLock::take(path, lock))
    }

    /// Removes the locks that killed servers left.
    pub(crate) fn sweep_locks(&self) {
        sweep_unlocked(&self.locks, "");
    }

    /// Locks the folder, for adding and removing.
    pub(crate) fn lock(&self) -> io::Result<File> {
        private_folder(&self.folder)?;
        let whole = File::open(&self.folder)?;
        rustix::fs::flock(&whole, FlockOperation::LockExclusive)?;
        Ok(whole)
    }

    /// Begins a layer.
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        let _whole = self.lock()?;
        self.sweep();
        let path = unfinished(&self.folder);
        private_folder(&path)?;
        let lock = File::create(path.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Programs run as another user and must be able to read the files. The folders above are private.
        fs::DirBuilder::new().mode(0o755).create(path.join(FILES))?;
        Ok(Draft { path, _lock: lock })
    }

    /// Gives a layer its name. If a layer with the same content is there, that one stays.
    pub(crate) fn publish(&self, draft: Draft, manifest: &Manifest, bom: &[u8]) -> io::Result<()> {
        fs::write(draft.path.join(BOM), bom)?;
        fs::write(draft.path.join(MANIFEST), serde_json::to_vec_pretty(manifest)?)?;
        let _whole = self.lock()?;
        let place = self.folder.join(&manifest.digest);
        if place.join(MANIFEST).exists() {
            return Ok(());
        }
        fs::remove_file(draft.path.join(LOCK))?;
        fs::rename(&draft.path, place)
    }

    /// Notes which layer a set of requirements has.
    pub(crate) fn note_set(&self, key: &str, entry: &SetEntry) -> io::Result<()> {
        replace(&self.sets.join(format!("{key}.json")), &serde_json::to_vec(entry)?)
    }

    /// Forgets a set of requirements.
    pub(crate) fn forget_set(&self, key: &str) {
        fs::remove_file(self.sets.join(format!("{key}.json"))).ok();
    }

    /// The layer of a set of requirements, if it is there.
    pub(crate) fn recall(&self, key: &str) -> Option<Used> {
        let entry = fs::read(self.sets.join(format!("{key}.json"))).ok()?;
        let entry: SetEntry = serde_json::from_slice(&entry).ok()?;
        self.use_layer(&entry.digest)
    }

    /// Takes a layer into use.
    pub(crate) fn use_layer(&self, digest: &str) -> Option<Used> {
        if !is_hex(digest, 32) {
            return None;
        }
        let place = self.folder.join(digest);
        let path = place.join(MANIFEST);
        let file = File::open(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
        // The layer may have been removed between opening and locking.
        if !is_named(&path, &file) {
            return None;
        }
        let manifest = self.manifest(digest, &file)?;
        // The time of the last use decides which layers stay. An outdated time does no harm.
        file.set_modified(SystemTime::now()).ok();
        Some(Used { manifest, files: place.join(FILES), in_use: InUse { _manifest: file } })
    }

    fn manifest(&self, digest: &str, file: &File) -> Option<Arc<Manifest>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(manifest) = known.get(digest) {
            return Some(Arc::clone(manifest));
        }
        let manifest = Arc::new(read_manifest(file).filter(|manifest| manifest.digest == digest)?);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(digest.to_owned(), Arc::clone(&manifest));
        Some(manifest)
    }

    /// Digests of all layers.
    pub(crate) fn digests(&self) -> Vec<String> {
        let listed = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut digests: Vec<String> = listed
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_hex(name, 32))
            .collect();
        digests.sort();
        digests
    }

    /// Removes what killed servers left. The caller holds the folder's lock.
    pub(crate) fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                continue;
            }
            let is_held = |name: &str| {
                File::open(path.join(name)).is_ok_and(|file| {
                    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
                })
            };
            if !is_held(LOCK) && !is_held(MANIFEST) {
                remove_tree(&path);
            }
        }
    }

    /// Removes a layer that is not in use. The caller holds the folder's lock.
    pub(crate) fn remove(&self, digest: &str) -> bool {
        let place = self.folder.join(digest);
        // Held until the layer has lost its name, so that no server takes it into use meanwhile.
        let manifest = File::open(place.join(MANIFEST)).ok();
        let is_free = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !manifest.as_ref().is_none_or(is_free) {
            return false;
        }
        // A server that opened the manifest before the lock notices that its name is gone.
        let away = unfinished(&self.folder);
        if fs::rename(&place, &away).is_err() {
            return false;
        }
        remove_tree(&away);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(digest);
        true
    }
}

/// Whether a relative path has plain names only.
pub(crate) fn is_plain_path(path: &str) -> bool {
    harvest::check_path(path).is_ok()
}

/// Reads a manifest, in bounds.
pub(crate) fn read_manifest(file: &File) -> Option<Manifest> {
    use std::io::Read;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time_installs_a_set_and_leaves_no_lock() {
        let folder = harness::TestFolder::new();
        let (one, other) = (Layers::new(folder.path()), Layers::new(folder.path()));
        let locks = || fs::read_dir(folder.path().join("locks")).unwrap().count();
        let first = one.lock_set("key").unwrap().expect("it is free");
        let waiting = lock_file(&folder.path().join("locks/key")).unwrap();
        assert!(other.lock_set("key").unwrap().is_none());
        let of_another_set = other.lock_set("another").unwrap().expect("it is free");
        assert_eq!(locks(), 2, "a server that waits removes nothing");
        drop(first);
        drop(of_another_set);
        assert_eq!(locks(), 0);
        // A server that opened the lock before its end has to open it again.
        assert!(SetLock::take(folder.path().join("locks/key"), waiting).is_none());
        let again = other.lock_set("key").unwrap().expect("it is free");
        folder.file("locks/of-a-killed-server", "");
        one.sweep_locks();
        assert_eq!(locks(), 1, "one that is held stays");
        drop(again);
    }
}
