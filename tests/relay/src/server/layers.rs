//! Read-only directories of the client, kept by digest: each is sent once and used by many sandboxes.
//!
//! The relay keeps a bounded number of them and removes those that were not used for longest.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::sandbox::BackendError;

use super::Server;
use super::objects::{Made, Thing};
use crate::link;
use crate::protocol::{LayerCall, LayerEntry, LayerKind, WallError};

const LAYERS_MAX: usize = 64;
const LAYER_BYTES_MAX: u64 = 1 << 30;
const LAYER_ENTRIES_MAX: usize = 100_000;
const DIGEST_BYTES_MAX: usize = 128;

/// The layers that have arrived.
pub(super) struct Layers {
    folder: PathBuf,
    kept: Mutex<HashMap<String, Arc<Kept>>>,
    /// Counts uses, and numbers layers that are arriving.
    clock: AtomicU64,
}

/// A layer. It is not removed while a sandbox has it.
pub(super) struct Kept {
    used: AtomicU64,
}

impl Layers {
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        Ok(Self { folder, kept: Mutex::default(), clock: AtomicU64::new(0) })
    }

    pub(super) fn path(&self, digest: &str) -> PathBuf {
        self.folder.join(digest)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// The layer with that digest.
    pub(super) fn find(&self, digest: &str) -> Option<Arc<Kept>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()?;
        kept.used.store(self.tick(), Ordering::Relaxed);
        Some(kept)
    }

    fn begin(&self, digest: String) -> io::Result<Arriving> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=DIGEST_BYTES_MAX).contains(&digest.len()) || !digest.bytes().all(is_plain) {
            return Err(refused("its digest is not a plain name"));
        }
        // No digest contains a dot.
        let folder = self.folder.join(format!("{digest}.{}", self.tick()));
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(Arriving { folder, digest, file: None, entries: 0, bytes: 0 })
    }

    fn finish(&self, arrived: &mut Arriving) -> io::Result<()> {
        arrived.file = None;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.contains_key(&arrived.digest) {
            // The same content came twice at once; the second copy is removed when it is dropped.
            return Ok(());
        }
        while kept.len() >= LAYERS_MAX {
            let unused = kept.iter().filter(|(_, layer)| Arc::strong_count(layer) == 1);
            let oldest = unused.min_by_key(|(_, layer)| layer.used.load(Ordering::Relaxed));
            let oldest =
                oldest.map(|(digest, _)| digest.clone()).ok_or_else(|| refused("no room is left"))?;
            kept.remove(&oldest);
            fs::remove_dir_all(self.path(&oldest))?;
        }
        fs::rename(&arrived.folder, self.path(&arrived.digest))?;
        kept.insert(arrived.digest.clone(), Arc::new(Kept { used: AtomicU64::new(self.tick()) }));
        Ok(())
    }
}

/// A layer of which not everything has come. If it is dropped before its end, it leaves nothing behind.
pub(super) struct Arriving {
    folder: PathBuf,
    digest: String,
    /// The file that the next bytes belong to.
    file: Option<File>,
    entries: usize,
    bytes: u64,
}

impl Arriving {
    fn add(&mut self, entry: &LayerEntry) -> io::Result<()> {
        self.entries += 1;
        let is_below = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_below(&entry.path) || self.entries > LAYER_ENTRIES_MAX {
            return Err(refused("its entries lead out of it or are too many"));
        }
        let path = self.folder.join(&entry.path);
        self.file = None;
        match &entry.kind {
            LayerKind::Directory { mode } => {
                fs::create_dir(&path)?;
                fs::set_permissions(&path, Permissions::from_mode(mode & 0o777 | 0o700))
            }
            LayerKind::File { mode } => {
                let file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&path)?;
                file.set_permissions(Permissions::from_mode(mode & 0o777))?;
                self.file = Some(file);
                Ok(())
            }
            LayerKind::Link { target } => symlink(target, &path),
        }
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.bytes += piece.len() as u64;
        if self.bytes > LAYER_BYTES_MAX {
            return Err(refused("it is too large"));
        }
        self.file.as_mut().ok_or_else(|| refused("its bytes belong to no file"))?.write_all(piece)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // A layer that has arrived has another name by now.
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the layer is refused: {why}"))
}

impl Server {
    pub(super) async fn answer_layer(&self, call: LayerCall) -> io::Result<(Vec<u8>, Made)> {
        let told = |done: io::Result<()>| {
            let at = |source| WallError::from(BackendError::Build { step: "layer".to_owned(), source });
            link::encode(&done.map_err(at))
        };
        match call {
            LayerCall::Has(digest) => Ok((link::encode(&self.layers.find(&digest).is_some())?, None)),
            LayerCall::Begin(digest) => match self.layers.begin(digest) {
                Ok(arriving) => {
                    Ok((told(Ok(()))?, Some(Thing::Layer(Arc::new(tokio::sync::Mutex::new(arriving))))))
                }
                Err(error) => Ok((told(Err(error))?, None)),
            },
            LayerCall::Entry(layer, entry) => {
                let layer = self.objects().layer(layer)?;
                let added = layer.lock().await.add(&entry);
                Ok((told(added)?, None))
            }
            LayerCall::Piece(layer, piece) => {
                let layer = self.objects().layer(layer)?;
                let written = layer.lock().await.write(&piece);
                Ok((told(written)?, None))
            }
            LayerCall::Finish(layer) => {
                let layer = self.objects().layer(layer)?;
                let finished = self.layers.finish(&mut *layer.lock().await);
                Ok((told(finished)?, None))
            }
        }
    }
}
