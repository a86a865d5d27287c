//! The list of a backup's files with their digests. A restore takes nothing that is not in it.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, io_error, item};

/// The file in the backup.
pub(super) const FILE: &str = "backup.json";
/// The form of backups that this program writes and reads.
const FORMAT: u32 = 1;
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
const PIECE_BYTES: usize = 256 << 10;

/// What a backup contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The form of the backup.
    pub format: u32,
    /// The version of the program that made it.
    pub palisade: String,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// Its files.
    pub files: Vec<BackedUp>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackedUp {
    /// Its path in the state directory.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// The digest of its content, in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    pub(super) fn new(created_ms: u64, files: Vec<BackedUp>) -> Self {
        Self { format: FORMAT, palisade: env!("CARGO_PKG_VERSION").to_owned(), created_ms, files }
    }

    /// Reads the manifest of a backup and refuses what no backup has.
    pub(super) fn read(backup: &Path) -> Result<Self, BackupError> {
        let refuse = |reason: String| BackupError::NoBackup(backup.to_owned(), reason);
        let file =
            std::fs::File::open(backup.join(FILE)).map_err(|error| refuse(format!("{FILE}: {error}")))?;
        let mut text = String::new();
        file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| refuse(format!("{FILE}: {error}")))?;
        if manifest.format != FORMAT {
            return Err(refuse(format!("its form is {}, and this program reads {FORMAT}", manifest.format)));
        }
        let mut names: Vec<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) || !names.iter().all(|name| item::is_known(name)) {
            return Err(refuse(format!("{FILE} names a file that no backup has, or one twice")));
        }
        Ok(manifest)
    }
}

impl BackedUp {
    /// A file as it is now.
    pub(super) fn of(folder: &Path, path: &str) -> Result<Self, BackupError> {
        let read = |error| io_error(format!("read {path}"))(error);
        let mut file = std::fs::File::open(folder.join(path)).map_err(read)?;
        let (mut hasher, mut size_bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
        loop {
            match file.read(&mut piece).map_err(read)? {
                0 => break,
                count => {
                    hasher.update(&piece[..count]);
                    size_bytes += count as u64;
                }
            }
        }
        let sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: path.to_owned(), size_bytes, sha256 })
    }
}
