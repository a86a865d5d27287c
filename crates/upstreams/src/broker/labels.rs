//! Labels: what a run has read, by the names that the operator gives to servers.
//!
//! Results of a server may carry labels. They stick to the run, and to a persistent sandbox as long as it exists: its
//! files and interpreters may hold what was read. A server that refuses a label is barred from then on. The labels of
//! sandboxes are files, written before the program gets the result.
//!
//! All runs of a sandbox share its labels, also a run that was opened before it had its turn.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::FlockOperation;

use super::shelf::{read_bounded, write_whole};

/// The most labels of a sandbox.
const LABELS_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The lock of the folder. No sandbox has this id.
pub(super) const LOCK: &str = ".lock";

/// The labels of persistent sandboxes.
#[derive(Debug)]
pub(super) struct LabelStore {
    folder: PathBuf,
    /// Those of sandboxes that have a run, by id.
    open: Mutex<HashMap<String, Weak<Labels>>>,
}

/// The labels of a run, or of a persistent sandbox.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// `None` for a run without a persistent sandbox.
    file: Option<LabelFile>,
    known: Mutex<BTreeSet<String>>,
    /// Those in the file. Locked while further ones are written.
    kept: tokio::sync::Mutex<BTreeSet<String>>,
}

/// Where the labels of a sandbox are.
#[derive(Debug, Clone)]
struct LabelFile {
    folder: PathBuf,
    /// The id of the sandbox, which the engine has made.
    name: String,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LabelStore {
    pub(super) fn new(tools_dir: &Path) -> Self {
        Self { folder: tools_dir.join("labels"), open: Mutex::default() }
    }

    /// The labels of a run in this sandbox.
    pub(super) fn open(&self, sandbox: &str) -> io::Result<Arc<Labels>> {
        let file = LabelFile { folder: self.folder.clone(), name: sandbox.to_owned() };
        // Locked before the file is read: a label that another run adds meanwhile is not missed.
        let mut open = locked(&self.open);
        let kept = file.read()?;
        if let Some(labels) = open.get(sandbox).and_then(Weak::upgrade) {
            locked(&labels.known).extend(kept);
            return Ok(labels);
        }
        open.retain(|_, labels| labels.strong_count() > 0);
        let known = Mutex::new(kept.clone());
        let labels = Arc::new(Labels { file: Some(file), known, kept: kept.into() });
        open.insert(sandbox.to_owned(), Arc::downgrade(&labels));
        Ok(labels)
    }
}

impl Labels {
    /// One of `refused` that is among these labels.
    pub(super) fn barred_by(&self, refused: &[String]) -> Option<String> {
        let known = locked(&self.known);
        refused.iter().find(|label| known.contains(*label)).cloned()
    }

    pub(super) fn all(&self) -> BTreeSet<String> {
        locked(&self.known).clone()
    }

    /// Adds labels of what is about to be read. It must not be given to the program before this succeeds.
    pub(super) async fn mark(&self, labels: BTreeSet<String>) -> io::Result<()> {
        if labels.is_empty() {
            return Ok(());
        }
        // First here: from now on servers are barred, whatever the disk does.
        locked(&self.known).extend(labels.iter().cloned());
        let Some(file) = self.file.clone() else { return Ok(()) };
        // A label is kept when it is written, and not before: a call with the same label waits for the first one, and
        // tries again if that one failed.
        let mut kept = self.kept.lock().await;
        if labels.is_subset(&kept) {
            return Ok(());
        }
        let added = labels.clone();
        tokio::task::spawn_blocking(move || file.add(&added)).await.map_err(io::Error::other)??;
        kept.extend(labels);
        Ok(())
    }
}

impl LabelFile {
    fn read(&self) -> io::Result<BTreeSet<String>> {
        let Some(bytes) = read_bounded(&self.folder.join(&self.name), FILE_BYTES_MAX)? else {
            return Ok(BTreeSet::new());
        };
        serde_json::from_slice(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Adds labels to those in the file. Blocks while another process does so: what it adds between the read and the
    /// write would be lost.
    fn add(&self, labels: &BTreeSet<String>) -> io::Result<()> {
        DirBuilder::new().mode(0o700).recursive(true).create(&self.folder)?;
        let path = self.folder.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let mut all = self.read()?;
        all.extend(labels.iter().cloned());
        if all.len() > LABELS_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        write_whole(&self.folder, &self.name, &serde_json::to_vec(&all)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn labels_of_a_sandbox_add_up_and_outlive_the_server() {
        let folder = harness::TestFolder::new();
        let store = LabelStore::new(folder.path());
        let first = store.open("sbx_1").unwrap();
        assert!(first.all().is_empty());
        first.mark(labels(&["private"])).await.unwrap();
        first.mark(labels(&["mail"])).await.unwrap();
        let later = LabelStore::new(folder.path());
        assert_eq!(later.open("sbx_1").unwrap().all(), labels(&["mail", "private"]));
        assert!(later.open("sbx_2").unwrap().all().is_empty());
        std::fs::write(folder.path().join("labels/sbx_1"), "[\"pri").unwrap();
        assert!(later.open("sbx_1").is_err(), "what cannot be read is not forgotten");
    }

    #[test]
    fn labels_that_processes_add_at_the_same_time_are_all_kept() {
        const ADDED: usize = 8;
        let folder = harness::TestFolder::new();
        let file = LabelFile { folder: folder.path().join("labels"), name: "sbx_1".to_owned() };
        let together = std::sync::Barrier::new(ADDED);
        let add = &|number: usize| {
            together.wait();
            file.add(&labels(&[&format!("label-{number}")])).unwrap();
        };
        std::thread::scope(|scope| {
            for number in 0..ADDED {
                scope.spawn(move || add(number));
            }
        });
        assert_eq!(file.read().unwrap().len(), ADDED);
    }
}
