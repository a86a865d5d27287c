//! What programs save for later runs of the same principal: functions (`tools.save`) and values (`tools.memory`).
//!
//! Each document is one file, replaced as a whole, so that a killed server leaves the old one or the new one. Labels of
//! the run that wrote a document are kept with it and stick to the run that reads it. That a document is there, is gone
//! or has no room says something, too: the labels of a run that changed that stick to the folder of the principal.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use policy::Principal;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The largest document: a function or a value.
pub(super) const DOCUMENT_BYTES_MAX: usize = 64 << 10;
/// The documents of one kind of a principal.
pub(super) const DOCUMENTS_MAX: usize = 256;
const KEY_BYTES_MAX: usize = 128;
/// What marked runs have changed in a folder, and their labels. It is no name of a document.
const MARKS: &str = ".labels";
/// The most labels of a folder.
const LABELS_MAX: usize = 256;
/// Room for the key, labels and escapes beside the document.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A document as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) key: String,
    pub(super) value: Value,
    #[serde(default)]
    pub(super) labels: BTreeSet<String>,
}

/// Why a document cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShelfError {
    #[error("a name has 1 to {KEY_BYTES_MAX} bytes and no control characters")]
    Key,
    #[error("it has more than {DOCUMENT_BYTES_MAX} bytes")]
    TooLarge,
    #[error("there are {DOCUMENTS_MAX} already")]
    Full,
    #[error("it cannot be read or written")]
    Io(#[from] io::Error),
}

/// The documents of one kind.
#[derive(Debug, Clone)]
pub(super) struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    pub(super) fn new(tools_dir: &Path, kind: &str) -> Self {
        Self { folder: tools_dir.join(kind) }
    }

    fn folder_of(&self, principal: &Principal) -> PathBuf {
        self.folder.join(hashed(principal.as_str()))
    }

    pub(super) fn get(&self, principal: &Principal, key: &str) -> Result<Option<Document>, ShelfError> {
        check_key(key)?;
        let path = self.folder_of(principal).join(hashed(key));
        let Some(bytes) = read_bounded(&path, FILE_BYTES_MAX)? else { return Ok(None) };
        let document =
            serde_json::from_slice(&bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Some(document))
    }

    pub(super) fn put(&self, principal: &Principal, document: &Document) -> Result<(), ShelfError> {
        check_key(&document.key)?;
        if document.value.to_string().len() > DOCUMENT_BYTES_MAX {
            return Err(ShelfError::TooLarge);
        }
        let (folder, name) = (self.folder_of(principal), hashed(&document.key));
        let is_new = !folder.join(&name).exists();
        if is_new && names(&folder)?.len() >= DOCUMENTS_MAX {
            return Err(ShelfError::Full);
        }
        if is_new {
            self.mark(principal, &document.labels)?;
        }
        let bytes = serde_json::to_vec(document).map_err(io::Error::from)?;
        Ok(write_whole(&folder, &name, &bytes)?)
    }

    /// Removes a document for a run with these labels. Returns whether there was one.
    pub(super) fn remove(
        &self,
        principal: &Principal,
        key: &str,
        labels: &BTreeSet<String>,
    ) -> Result<bool, ShelfError> {
        check_key(key)?;
        self.mark(principal, labels)?;
        match fs::remove_file(self.folder_of(principal).join(hashed(key))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => Ok(removed.map(|()| true)?),
        }
    }

    /// The labels of runs that decided which documents there are.
    pub(super) fn marks(&self, principal: &Principal) -> Result<BTreeSet<String>, ShelfError> {
        let Some(bytes) = read_bounded(&self.folder_of(principal).join(MARKS), FILE_BYTES_MAX)? else {
            return Ok(BTreeSet::new());
        };
        Ok(serde_json::from_slice(&bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?)
    }

    /// Adds labels, before the documents change. Blocks while another process does so.
    fn mark(&self, principal: &Principal, labels: &BTreeSet<String>) -> Result<(), ShelfError> {
        if labels.is_empty() || labels.is_subset(&self.marks(principal)?) {
            return Ok(());
        }
        let folder = self.folder_of(principal);
        DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
        let path = folder.join(format!("{MARKS}.lock"));
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        let mut all = self.marks(principal)?;
        all.extend(labels.iter().cloned());
        if all.len() > LABELS_MAX {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        let bytes = serde_json::to_vec(&all).map_err(io::Error::from)?;
        Ok(write_whole(&folder, MARKS, &bytes)?)
    }

    /// All documents, by key. One that cannot be read is left out.
    pub(super) fn list(&self, principal: &Principal) -> Result<Vec<Document>, ShelfError> {
        let folder = self.folder_of(principal);
        let read = |name: &String| read_bounded(&folder.join(name), FILE_BYTES_MAX).ok().flatten();
        let parse = |bytes: Vec<u8>| serde_json::from_slice::<Document>(&bytes).ok();
        let mut found: Vec<Document> =
            names(&folder)?.iter().take(DOCUMENTS_MAX).filter_map(read).filter_map(parse).collect();
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }
}

fn check_key(key: &str) -> Result<(), ShelfError> {
    let is_fit = (1..=KEY_BYTES_MAX).contains(&key.len()) && !key.contains(char::is_control);
    if is_fit { Ok(()) } else { Err(ShelfError::Key) }
}

/// A name of a file that says nothing and cannot lead elsewhere.
fn hashed(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

/// The content of a file; `None` if there is none.
pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(Some(bytes)) }
}

/// Writes a file at once: a reader finds the old content or the new one.
pub(super) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!(".{name}.{}.{number}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(name))
    })();
    if written.is_err() {
        // The error itself tells what failed.
        fs::remove_file(&draft).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(key: &str, value: Value) -> Document {
        Document { key: key.to_owned(), value, labels: BTreeSet::new() }
    }

    #[test]
    fn documents_belong_to_their_principal() {
        let folder = harness::TestFolder::new();
        let shelf = Shelf::new(folder.path(), "saved");
        let (one, other) = (Principal::local(), Principal::anonymous());
        shelf.put(&one, &document("f", json!({"source": "def f(): pass"}))).unwrap();
        shelf.put(&one, &document("f", json!(2))).unwrap();
        assert_eq!(shelf.get(&one, "f").unwrap().unwrap().value, json!(2));
        assert!(shelf.get(&other, "f").unwrap().is_none() && shelf.list(&other).unwrap().is_empty());
        assert_eq!(shelf.list(&one).unwrap().len(), 1);
        let none = BTreeSet::new();
        assert!(shelf.remove(&one, "f", &none).unwrap() && !shelf.remove(&one, "f", &none).unwrap());
    }

    #[test]
    fn size_number_and_names_are_bounded() {
        let folder = harness::TestFolder::new();
        let (shelf, one) = (Shelf::new(folder.path(), "memory"), Principal::local());
        let large = document("x", json!("x".repeat(DOCUMENT_BYTES_MAX)));
        assert!(matches!(shelf.put(&one, &large), Err(ShelfError::TooLarge)));
        for key in ["", "a\nb", &"k".repeat(KEY_BYTES_MAX + 1)] {
            assert!(matches!(shelf.put(&one, &document(key, json!(1))), Err(ShelfError::Key)));
        }
        shelf.put(&one, &document("../../etc/passwd", json!(1))).unwrap();
        for number in 1..DOCUMENTS_MAX {
            shelf.put(&one, &document(&format!("k{number}"), json!(number))).unwrap();
        }
        assert!(matches!(shelf.put(&one, &document("more", json!(1))), Err(ShelfError::Full)));
        shelf.put(&one, &document("k1", json!("again"))).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().count() == 1, "nothing is written elsewhere");
    }
}
