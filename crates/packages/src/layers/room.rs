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

/// What was fetched, with the time of its last use and its size: blobs and documents are in folders of folders.
fn fetched(folder: &Path) -> Vec<(SystemTime, u64, PathBuf)> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in below(folder)
        .flat_map(|folder| below(&folder).collect::<Vec<_>>())
        .flat_map(|folder| below(&folder).collect::<Vec<_>>())
    {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_file() {
            found.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), path));
        }
    }
    found
}

/// Removes what was used least recently until the rest fits: blobs and documents before layers, because they can be fetched again.
/// Returns the number of layers and blobs that were removed. The caller holds the lock of the layers.
pub(crate) fn make_room(
    layers: &Layers,
    [blobs, documents]: [&Path; 2],
    bytes_max: u64,
    older_than: Option<SystemTime>,
) -> (usize, usize) {
    let mut kept_files = [fetched(blobs), fetched(documents)].concat();
    kept_files.sort();
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
    let mut bytes: u64 = kept_files.iter().map(|(_, size, _)| size).sum::<u64>()
        + kept_layers.iter().map(|(_, size, _)| size).sum::<u64>();
    let is_old = |used: &SystemTime| older_than.is_some_and(|limit| *used < limit);
    let (mut removed_layers, mut removed_blobs) = (0, 0);
    for (used, size, path) in kept_files {
        if (bytes > bytes_max || is_old(&used)) && fs::remove_file(&path).is_ok() {
            bytes = bytes.saturating_sub(size);
            removed_blobs += usize::from(path.starts_with(blobs));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_blobs_that_were_not_used_lately_make_room() {
        let folder = harness::TestFolder::new();
        let layers = Layers::new(folder.path());
        let (blobs, documents) = (folder.path().join("blobs"), folder.path().join("index"));
        let moment = |seconds: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = |name: &str, used: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![b'x'; 1000]).unwrap();
            fs::File::open(&path).unwrap().set_modified(moment(used)).unwrap();
            path
        };
        let all = [
            file("blobs/sha256/aa/aa1", 1),
            file("index/go/m/old.doc", 2),
            file("blobs/sha256/bb/bb1", 3),
            file("index/pypi/m/new.doc", 4),
        ];
        let there = || all.iter().map(|path| path.exists()).collect::<Vec<_>>();
        assert_eq!(make_room(&layers, [&blobs, &documents], 4000, None), (0, 0));
        assert_eq!(there(), [true; 4]);
        assert_eq!(make_room(&layers, [&blobs, &documents], 2999, None), (0, 1), "one blob is counted");
        assert_eq!(there(), [false, false, true, true]);
        assert_eq!(make_room(&layers, [&blobs, &documents], 4000, Some(moment(4))), (0, 1));
        assert_eq!(there(), [false, false, false, true]);
    }
}
