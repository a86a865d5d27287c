//! The layers of a state directory, for commands without a server: list them, and remove those that are not used.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use engine::packages::{Ecosystem, PackageVersion};

use crate::blobs::Blobs;
use crate::files::sweep_drafts;
use crate::layers::{Layers, MANIFEST, SetEntry, bytes_beneath, make_room};

/// A layer as it is listed.
#[derive(Debug, Clone)]
pub struct ListedLayer {
    /// The digest of its files.
    pub digest: String,
    /// Where its packages come from.
    pub ecosystem: Ecosystem,
    /// The interpreter that it was built for.
    pub interpreter: String,
    /// The bytes of its files.
    pub bytes: u64,
    /// What it holds.
    pub packages: Vec<PackageVersion>,
    /// The sets of requirements that lead to it.
    pub sets: Vec<Vec<String>>,
    /// When it was last used.
    pub used: SystemTime,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Layers.
    pub layers: usize,
    /// Files of mirrors.
    pub blobs: usize,
    /// Bytes on the disk.
    pub bytes: u64,
}

/// The packages of a state directory.
pub struct Catalogue {
    folder: PathBuf,
    layers: Layers,
    blobs: Blobs,
}

impl Catalogue {
    /// The packages of that state directory.
    pub fn new(state_dir: &Path) -> Self {
        let folder = crate::book::folder(state_dir);
        let (layers, blobs) = (Layers::new(&folder), Blobs::new(folder.join("blobs")));
        Self { folder, layers, blobs }
    }

    /// All layers with packages.
    pub fn list(&self) -> Vec<ListedLayer> {
        let mut sets: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for (_, entry) in self.sets() {
            sets.entry(entry.digest).or_default().push(entry.requirements);
        }
        let listed = self.layers.digests().into_iter().filter_map(|digest| {
            let path = self.layers.folder().join(&digest).join(MANIFEST);
            let used = fs::metadata(&path).ok()?.modified().ok()?;
            let manifest = crate::layers::read_manifest(&fs::File::open(path).ok()?)?;
            Some(ListedLayer {
                ecosystem: manifest.ecosystem,
                interpreter: manifest.interpreter.clone(),
                bytes: manifest.bytes,
                packages: manifest.versions(),
                sets: sets.remove(&digest).unwrap_or_default(),
                used,
                digest,
            })
        });
        listed.collect()
    }

    fn sets(&self) -> Vec<(PathBuf, SetEntry)> {
        let listed = fs::read_dir(self.layers.sets()).into_iter().flatten().flatten();
        listed
            .filter_map(|entry| {
                let set = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
                Some((entry.path(), set))
            })
            .collect()
    }

    /// Removes layers and blobs that were not used for that long, and what killed servers left. Layers in use stay.
    pub fn collect_garbage(&self, unused_for: Duration) -> io::Result<Removed> {
        if !self.folder.is_dir() {
            return Ok(Removed::default());
        }
        let before = bytes_beneath(&self.folder);
        let limit = SystemTime::now().checked_sub(unused_for).unwrap_or(SystemTime::UNIX_EPOCH);
        let _whole = self.layers.lock()?;
        self.layers.sweep();
        self.blobs.sweep();
        sweep_drafts(self.layers.sets());
        self.layers.sweep_locks();
        let fetched = [self.blobs.folder(), &self.folder.join("index")];
        let (layers, blobs) = make_room(&self.layers, fetched, u64::MAX, Some(limit));
        let there: HashSet<String> = self.layers.digests().into_iter().collect();
        for (path, set) in self.sets() {
            if !there.contains(&set.digest) {
                fs::remove_file(path)?;
            }
        }
        Ok(Removed { layers, blobs, bytes: before.saturating_sub(bytes_beneath(&self.folder)) })
    }
}
