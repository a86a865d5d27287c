//! Sends the content of a layer to the relay, once for each digest.
//!
//! The relay learns names below the layer and contents, never where the layer is.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::sandbox::{BackendError, Layer};

use super::connection::Connection;
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::protocol::{Call, LayerCall, LayerEntry, LayerKind, WallError};

/// How many entries a layer may have.
const ENTRIES_MAX: usize = 100_000;
/// One frame with its call around it.
const PIECE_BYTES: usize = PAYLOAD_BYTES_MAX - 64;

/// Ensures that the relay has the layer.
pub(super) async fn send(connection: &Arc<Connection>, layer: &Layer) -> Result<(), BackendError> {
    if connection.call(&Call::Layer(LayerCall::Has(layer.digest.clone()))).await? {
        return Ok(());
    }
    let call = Call::Layer(LayerCall::Begin(layer.digest.clone()));
    let (arriving, begun): (_, Result<(), WallError>) = connection.make(&call).await?;
    begun?;
    let tell = async |call: LayerCall| -> Result<(), BackendError> {
        let done: Result<(), WallError> = connection.call(&Call::Layer(call)).await?;
        Ok(done?)
    };
    for entry in entries(&layer.path).map_err(unreadable)? {
        let file = matches!(entry.kind, LayerKind::File { .. }).then(|| layer.path.join(&entry.path));
        tell(LayerCall::Entry(arriving.id(), entry)).await?;
        let Some(file) = file else { continue };
        let mut file = fs::File::open(file).map_err(unreadable)?;
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let limit = PIECE_BYTES as u64;
            if file.by_ref().take(limit).read_to_end(&mut piece).map_err(unreadable)? == 0 {
                break;
            }
            tell(LayerCall::Piece(arriving.id(), piece)).await?;
        }
    }
    tell(LayerCall::Finish(arriving.id())).await
}

fn unreadable(source: io::Error) -> BackendError {
    BackendError::Build { step: "layer".to_owned(), source }
}

/// Everything below a directory, each directory before its entries.
fn entries(top: &Path) -> io::Result<Vec<LayerEntry>> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(top.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let about = entry.metadata()?;
            let mode = about.permissions().mode() & 0o777;
            let kind = if about.is_dir() {
                directories.push(path.clone());
                LayerKind::Directory { mode }
            } else if about.is_symlink() {
                LayerKind::Link { target: fs::read_link(entry.path())? }
            } else if about.is_file() {
                LayerKind::File { mode }
            } else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a layer has files and links only"));
            };
            found.push(LayerEntry { path, kind });
            if found.len() > ENTRIES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a layer has too many entries"));
            }
        }
    }
    Ok(found)
}
