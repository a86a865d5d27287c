//! Files of mirrors, kept by digest: `blobs/<algorithm>/<first two digits>/<digest>`.
//!
//! A blob gets its name after its digest was compared. One that is used again is compared once more in each process.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::fetch::{FetchError, Fetcher};
use crate::files::{draft, hex, is_hex, private_folder, sweep_drafts};
use crate::index::Count;
use crate::settings::Mirror;

/// The most locks of blobs that are kept for later.
const LOCKS_KEPT_MAX: usize = 256;

/// How a blob is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Algorithm {
    Sha256,
    Sha512,
}

/// The name of a blob: the digest of its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct BlobId {
    algorithm: Algorithm,
    digest: String,
}

impl BlobId {
    /// Checks the form of a digest in hexadecimal digits.
    pub(crate) fn new(algorithm: Algorithm, digest: &str) -> Option<Self> {
        let digest = digest.to_ascii_lowercase();
        let bytes = match algorithm {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        };
        is_hex(&digest, bytes).then_some(Self { algorithm, digest })
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The name of the algorithm in an inventory.
    pub(crate) fn algorithm_name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Sha512 => "SHA-512",
        }
    }

    fn folder_name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// The path below the folder of blobs.
    pub(crate) fn relative(&self) -> PathBuf {
        Path::new(self.folder_name()).join(&self.digest[..2]).join(&self.digest)
    }

    /// The blob of a path below the folder of blobs.
    pub(crate) fn of_relative(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let (algorithm, rest) = text.split_once('/')?;
        let algorithm = match algorithm {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return None,
        };
        let id = Self::new(algorithm, rest.split_once('/')?.1)?;
        (id.relative() == path).then_some(id)
    }
}

/// Computes the digest of a blob.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Hasher {
    pub(crate) fn of(id: &BlobId) -> Self {
        match id.algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Box::new(Sha512::new())),
        }
    }

    pub(crate) fn update(&mut self, part: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(part),
            Self::Sha512(hasher) => hasher.update(part),
        }
    }

    pub(crate) fn is(self, id: &BlobId) -> bool {
        let digest = match self {
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Sha512(hasher) => hex(&hasher.finalize()),
        };
        digest == id.digest
    }
}

/// All blobs of a state directory.
pub(crate) struct Blobs {
    folder: PathBuf,
    /// Those that this process has compared with their digest.
    compared: Mutex<HashSet<BlobId>>,
    /// One fetch of a blob at a time.
    locks: Mutex<HashMap<BlobId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Blobs {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, compared: Mutex::default(), locks: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens a blob that is there, if its content is what its name says.
    pub(crate) fn open(&self, id: &BlobId) -> Option<File> {
        let mut file = File::open(self.folder.join(id.relative())).ok()?;
        let is_compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner).contains(id);
        if !is_compared {
            if !is_content(&mut file, id).ok()? {
                tracing::warn!("damaged_blob_removed");
                fs::remove_file(self.folder.join(id.relative())).ok();
                return None;
            }
            self.note_compared(id);
        }
        // The time of the last use decides which blobs stay. An outdated time does no harm.
        file.set_modified(SystemTime::now()).ok();
        Some(file)
    }

    fn note_compared(&self, id: &BlobId) {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    }

    /// Opens a blob, and fetches it before if it is not there. `count` is told each part that is fetched.
    pub(crate) async fn fetch(
        &self,
        (fetcher, mirror): (&Fetcher, &Mirror),
        (id, url): (&BlobId, &str),
        bytes_max: u64,
        count: Count<'_>,
    ) -> Result<File, FetchError> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() > LOCKS_KEPT_MAX {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(locks.entry(id.clone()).or_default())
        };
        let _turn = lock.lock().await;
        if let Some(file) = self.open(id) {
            return Ok(file);
        }
        let disk = |error: io::Error| FetchError::Disk(error.to_string());
        let (path, mut file) = draft(&self.folder).map_err(disk)?;
        let mut hasher = Hasher::of(id);
        let take: crate::fetch::PartTaker<'_> = &mut |part| {
            hasher.update(part);
            count(part.len() as u64)?;
            file.write_all(part)
        };
        let fetched = fetcher.file(mirror, url, bytes_max, take).await;
        let kept = fetched.and_then(|()| match hasher.is(id) {
            true => self.keep(&path, id).map_err(disk),
            false => Err(FetchError::Mismatch),
        });
        if kept.is_err() {
            fs::remove_file(&path).ok();
        }
        kept?;
        self.note_compared(id);
        self.open(id).ok_or_else(|| FetchError::Disk("what was stored cannot be opened".to_owned()))
    }

    /// Fetches a file whose digest is not known, and keeps it under the one that it has.
    pub(crate) async fn fetch_unknown(
        &self,
        (fetcher, mirror): (&Fetcher, &Mirror),
        url: &str,
        bytes_max: u64,
        count: Count<'_>,
    ) -> Result<(BlobId, File), FetchError> {
        let disk = |error: io::Error| FetchError::Disk(error.to_string());
        let (path, mut file) = draft(&self.folder).map_err(disk)?;
        let mut hasher = Sha256::new();
        let take: crate::fetch::PartTaker<'_> = &mut |part| {
            hasher.update(part);
            count(part.len() as u64)?;
            file.write_all(part)
        };
        let fetched = fetcher.file(mirror, url, bytes_max, take).await;
        let id = BlobId { algorithm: Algorithm::Sha256, digest: hex(&hasher.finalize()) };
        let kept = fetched.and_then(|()| self.keep(&path, &id).map_err(disk));
        if kept.is_err() {
            fs::remove_file(&path).ok();
        }
        kept?;
        self.note_compared(&id);
        let file =
            self.open(&id).ok_or_else(|| FetchError::Disk("what was stored cannot be opened".to_owned()))?;
        Ok((id, file))
    }

    /// Gives a draft whose content was compared its name.
    pub(crate) fn keep(&self, draft: &Path, id: &BlobId) -> io::Result<()> {
        let place = self.folder.join(id.relative());
        if let Some(folder) = place.parent() {
            private_folder(folder)?;
        }
        fs::rename(draft, place)
    }

    /// Removes what killed servers left.
    pub(crate) fn sweep(&self) {
        sweep_drafts(&self.folder);
    }
}

/// Reads a file to its end and compares its digest.
pub(crate) fn is_content(file: &mut File, id: &BlobId) -> io::Result<bool> {
    let mut hasher = Hasher::of(id);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.is(id));
        }
        hasher.update(&buffer[..count]);
    }
}
