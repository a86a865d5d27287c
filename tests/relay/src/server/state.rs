//! The relay's state directory, at a place that its client is not told.
//!
//! It ends with the relay. A relay that was killed leaves its directory behind, without a lock, and a later one
//! removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

/// The beginning of its name, followed by the process, and the word that tells it from other folders of tests.
const NAME: &str = "palisade-test-";
const WORD: &str = "-relay-";
/// Younger directories may belong to a relay that has not locked them yet.
const MAKING: Duration = Duration::from_secs(60);

/// The directory of this relay.
pub(super) struct StateFolder {
    path: PathBuf,
    _lock: File,
}

impl StateFolder {
    pub(super) fn make() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent)?;
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let path =
            parent.join(format!("{NAME}{}{WORD}{:016x}", std::process::id(), u64::from_le_bytes(random)));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        // A later relay removes what is left.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Removes directories that no relay has locked.
fn remove_abandoned(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = name.starts_with(NAME) && name.contains(WORD);
        let made = entry.metadata().and_then(|about| about.modified());
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MAKING));
        if !is_ours || !is_old {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Another relay may remove it at the same time.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    Ok(())
}
