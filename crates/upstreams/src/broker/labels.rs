//! Labels: what a run has read, by the names that the operator gives to servers.
//!
//! Results of a server may carry labels. They stick to the run, and to a persistent sandbox as long as it exists: its
//! files and interpreters may hold what was read. A server that refuses a label is barred from then on. The labels of
//! sandboxes are files, written before the program gets the result.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::shelf::{read_bounded, write_whole};

/// The most labels of a sandbox.
const LABELS_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The labels of persistent sandboxes.
#[derive(Debug)]
pub(super) struct LabelStore {
    folder: PathBuf,
}

impl LabelStore {
    pub(super) fn new(tools_dir: &Path) -> Self {
        Self { folder: tools_dir.join("labels") }
    }

    /// The labels of a sandbox. The name of its file is its id, which the engine has made.
    pub(super) fn read(&self, sandbox: &str) -> io::Result<BTreeSet<String>> {
        let Some(bytes) = read_bounded(&self.folder.join(sandbox), FILE_BYTES_MAX)? else {
            return Ok(BTreeSet::new());
        };
        serde_json::from_slice(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Adds labels to those of a sandbox.
    pub(super) fn add(&self, sandbox: &str, labels: &BTreeSet<String>) -> io::Result<()> {
        let mut known = self.read(sandbox)?;
        known.extend(labels.iter().cloned());
        if known.len() > LABELS_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        write_whole(&self.folder, sandbox, &serde_json::to_vec(&known)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_sandbox_add_up_and_outlive_the_server() {
        let folder = harness::TestFolder::new();
        let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let store = LabelStore::new(folder.path());
        assert!(store.read("sbx_1").unwrap().is_empty());
        store.add("sbx_1", &labels(&["private"])).unwrap();
        store.add("sbx_1", &labels(&["mail"])).unwrap();
        let later = LabelStore::new(folder.path());
        assert_eq!(later.read("sbx_1").unwrap(), labels(&["mail", "private"]));
        assert!(later.read("sbx_2").unwrap().is_empty());
        std::fs::write(folder.path().join("labels/sbx_1"), "[\"pri").unwrap();
        assert!(later.read("sbx_1").is_err(), "what cannot be read is not forgotten");
    }
}
