//! The size of the store, and what goes when it is too large.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Layers, MANIFEST};

/// The deepest folder that is counted.
const DEPTH_MAX: usize = 64;

/// Bytes on the disk below a folder. Links are not followed.
pub(crate) fn bytes_beneath(path: &Path) -> u64 {
    fn count(path: &Path, depth: usize) -> u64 {
        let mut bytes = 0;
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            bytes += match meta.is_dir() && depth < DEPTH_MAX {
                true => count(&entry.path(), depth + 1),
                false => meta.blocks() * 512,
            };
        }
        bytes
    }
    count(path, 0)
}

/// The blobs with the time of their last use and their size.
pub(crate) fn blobs(folder: &Path) -> Vec<(SystemTime, u64, PathBuf)> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in below(folder)
        .flat_map(|algorithm| below(&algorithm).collect::<Vec<_>>())
        .flat_map(|two| below(&two).collect::<Vec<_>>())
    {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_file() {
            found.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), path));
        }
    }
    found
}

/// Removes what was used least recently until the rest fits: blobs before layers, because they can be fetched again.
/// Returns the number of layers and blobs that were removed. The caller holds the lock of the layers.
pub(crate) fn make_room(
    layers: &Layers,
    blob_folder: &Path,
    bytes_max: u64,
    older_than: Option<SystemTime>,
) -> (usize, usize) {
    let mut kept_blobs = blobs(blob_folder);
    kept_blobs.sort();
    let mut kept_layers: Vec<(SystemTime, u64, String)> = layers
        .digests()
        .into_iter()
        .filter_map(|digest| {
            let place = layers.folder().join(&digest);
            let used = fs::metadata(place.join(MANIFEST)).ok()?.modified().ok()?;
            Some((used, bytes_beneath(&place), digest))
        })
        .collect();
    kept_layers.sort();
    let mut bytes: u64 = kept_blobs.iter().map(|(_, size, _)| size).sum::<u64>()
        + kept_layers.iter().map(|(_, size, _)| size).sum::<u64>();
    let is_old = |used: &SystemTime| older_than.is_some_and(|limit| *used < limit);
    let (mut removed_layers, mut removed_blobs) = (0, 0);
    for (used, size, path) in kept_blobs {
        if (bytes > bytes_max || is_old(&used)) && fs::remove_file(path).is_ok() {
            bytes = bytes.saturating_sub(size);
            removed_blobs += 1;
        }
    }
    for (used, size, digest) in kept_layers {
        if (bytes > bytes_max || is_old(&used)) && layers.remove(&digest) {
            bytes = bytes.saturating_sub(size);
            removed_layers += 1;
        }
    }
    (removed_layers, removed_blobs)
}
