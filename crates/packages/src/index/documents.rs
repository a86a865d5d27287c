//! Documents of mirrors on disk: `index/<ecosystem>/<mirror>/<name>`, with what is needed to ask again.
//!
//! A fresh document is used as it is. An older one is asked for again; if the mirror is down, it still serves.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use engine::packages::Ecosystem;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::now_ms;
use crate::fetch::{Document, DocumentRequest, FetchError, SharedFetcher};
use crate::files::{hex, replace};
use crate::settings::{Mirror, PackagesConfig};

/// The time of documents that may be wrong.
const DOUBTED: i64 = 0;

/// The head of a stored document. The content follows after a line feed.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// [`DOUBTED`] if the mirror must be asked again, whatever its age is.
    fetched_ms: i64,
    etag: Option<String>,
    is_json: bool,
}

impl Head {
    fn now(etag: Option<String>, is_json: bool) -> Self {
        Self { fetched_ms: now_ms(), etag, is_json }
    }
}

/// A document.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) is_json: bool,
}

/// The documents of a state directory.
pub(crate) struct Documents {
    folder: PathBuf,
    fetcher: SharedFetcher,
    fresh_ms: i64,
    bytes_max: usize,
}

/// Counts bytes. Fails when there are too many.
pub(crate) type Count<'a> = &'a (dyn Fn(u64) -> io::Result<()> + Send + Sync);

/// The documents, for one installation.
pub(crate) struct Counted<'a> {
    documents: &'a Documents,
    count: Count<'a>,
}

/// Which document of an index.
pub(crate) struct Wanted<'a> {
    pub(crate) ecosystem: Ecosystem,
    pub(crate) mirror: &'a Mirror,
    /// A name that is fit for a file.
    pub(crate) file: &'a str,
    pub(crate) url: &'a str,
    pub(crate) accept: &'static str,
    /// Whether its content can never change: it is asked for once.
    pub(crate) is_final: bool,
}

impl Documents {
    pub(crate) fn new(folder: PathBuf, fetcher: SharedFetcher, config: &PackagesConfig) -> Self {
        let fresh_ms = i64::try_from(config.patience.fresh.as_millis()).unwrap_or(i64::MAX);
        Self { folder, fetcher, fresh_ms, bytes_max: config.bounds.document_bytes_max }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The documents as one installation reads them. `count` is told the bytes of each document that is fetched.
    pub(crate) fn counted<'a>(&'a self, count: Count<'a>) -> Counted<'a> {
        Counted { documents: self, count }
    }

    fn mirror_folder(&self, ecosystem: Ecosystem, mirror: &Mirror) -> PathBuf {
        let digest = hex(&Sha256::digest(mirror.base.to_string()));
        self.folder.join(ecosystem.name()).join(&digest[..16])
    }

    /// Names of packages whose documents are kept.
    pub(crate) fn known_names(&self, ecosystem: Ecosystem, mirror: &Mirror) -> Vec<String> {
        let listed = fs::read_dir(self.mirror_folder(ecosystem, mirror)).into_iter().flatten().flatten();
        listed
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".doc").map(|name| name.replace("%2f", "/")))
            .collect()
    }

    /// A note about something of a mirror, beside its documents, and whether it is in doubt.
    pub(crate) fn kept(
        &self,
        ecosystem: Ecosystem,
        mirror: &Mirror,
        file: &str,
    ) -> Option<(Arc<Vec<u8>>, bool)> {
        let kept = read(&self.mirror_folder(ecosystem, mirror).join(file));
        kept.map(|(head, stored)| (stored.bytes, head.fetched_ms == DOUBTED))
    }

    /// Keeps such a note.
    pub(crate) fn keep(&self, ecosystem: Ecosystem, mirror: &Mirror, file: &str, bytes: Vec<u8>) {
        let stored = Stored { bytes: Arc::new(bytes), is_json: true };
        write(&self.mirror_folder(ecosystem, mirror).join(file), Head::now(None, true), &stored);
    }

    /// Notes that a document may be wrong. The mirror is asked for it again, but it still serves while the mirror is down.
    pub(crate) fn doubt(&self, ecosystem: Ecosystem, mirror: &Mirror, file: &str) {
        let path = self.mirror_folder(ecosystem, mirror).join(file);
        if let Some((head, stored)) = read(&path) {
            write(&path, Head { fetched_ms: DOUBTED, etag: None, ..head }, &stored);
        }
    }

    /// Removes a document that cannot be read.
    pub(crate) fn forget(&self, ecosystem: Ecosystem, mirror: &Mirror, file: &str) {
        fs::remove_file(self.mirror_folder(ecosystem, mirror).join(file)).ok();
    }
}

impl Counted<'_> {
    /// A document, from the disk or from the mirror.
    pub(crate) async fn get(&self, wanted: &Wanted<'_>) -> Result<Stored, FetchError> {
        let documents = self.documents;
        let path = documents.mirror_folder(wanted.ecosystem, wanted.mirror).join(wanted.file);
        let kept = read(&path);
        if let Some((head, kept)) = &kept
            && (wanted.is_final && head.fetched_ms != DOUBTED
                || now_ms().saturating_sub(head.fetched_ms) < documents.fresh_ms)
        {
            note_use(&path);
            return Ok(kept.clone());
        }
        let request = DocumentRequest {
            mirror: wanted.mirror,
            url: wanted.url,
            accept: wanted.accept,
            etag: kept.as_ref().and_then(|(head, _)| head.etag.as_deref()),
            bytes_max: documents.bytes_max,
        };
        match (documents.fetcher.document(&request).await, kept) {
            (Ok(Document::Body { bytes, etag, is_json }), _) => {
                (self.count)(bytes.len() as u64).map_err(|error| FetchError::Disk(error.to_string()))?;
                let stored = Stored { bytes: Arc::new(bytes), is_json };
                write(&path, Head::now(etag, is_json), &stored);
                Ok(stored)
            }
            (Ok(Document::NotModified), Some((head, kept))) => {
                write(&path, Head::now(head.etag, kept.is_json), &kept);
                Ok(kept)
            }
            (Ok(Document::NotModified), None) => Err(FetchError::Malformed("an empty answer".to_owned())),
            (Err(error), Some((_, kept))) if error != FetchError::NotFound => {
                tracing::info!(reason = %error, "index_document_is_old");
                note_use(&path);
                Ok(kept)
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Notes when a document was used last, which decides how long it stays. An outdated time does no harm.
fn note_use(path: &Path) {
    File::open(path).and_then(|file| file.set_modified(SystemTime::now())).ok();
}

fn read(path: &Path) -> Option<(Head, Stored)> {
    let mut bytes = fs::read(path).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    bytes.drain(..=end);
    let is_json = head.is_json;
    Some((head, Stored { bytes: Arc::new(bytes), is_json }))
}

/// Keeps a document. Without it the next installation asks the mirror.
fn write(path: &Path, head: Head, stored: &Stored) {
    let Ok(mut content) = serde_json::to_vec(&head) else { return };
    content.push(b'\n');
    content.extend_from_slice(&stored.bytes);
    if let Err(error) = replace(path, &content) {
        tracing::debug!(reason = %error, "index_document_not_kept");
    }
}
