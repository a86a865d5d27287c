//! Which servers are alive: each server holds a locked file until its process ends.
//!
//! Several servers may share one state directory. The kernel releases the lock with the process, so a file that
//! can be locked belongs to a dead server. A server locks its file before it writes its first row.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::handle::hex;

const ID_BYTES: usize = 8;
/// How often joining retries after a sweep removed its new file.
const ATTEMPTS_MAX: usize = 8;
/// The most files examined in one sweep.
const SWEPT_MAX: usize = 1024;

/// This server among the others.
#[derive(Debug)]
pub(crate) struct Servers {
    folder: PathBuf,
    own: String,
    /// Locked for as long as it is open.
    _lock: File,
}

impl Servers {
    /// Chooses a new name and locks its file.
    pub(crate) fn join(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for _ in 0..ATTEMPTS_MAX {
            let mut bytes = [0_u8; ID_BYTES];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let own = hex(&bytes);
            let path = folder.join(&own);
            let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            // A sweep may have found the file before it was locked, and removed it.
            if lock.try_lock().is_ok() && is_same(&lock, &path) {
                return Ok(Self { folder: folder.to_owned(), own, _lock: lock });
            }
        }
        Err(io::Error::other("no name could be taken"))
    }

    /// The name of this server.
    pub(crate) fn own(&self) -> &str {
        &self.own
    }

    /// Whether that server is alive. If this cannot be determined it counts as alive, so that no run is closed
    /// by mistake.
    pub(crate) fn is_alive(&self, server: &str) -> bool {
        let is_name = server.len() == 2 * ID_BYTES && server.bytes().all(|byte| byte.is_ascii_hexdigit());
        if server == self.own || !is_name {
            return server == self.own;
        }
        match File::open(self.folder.join(server)) {
            Ok(file) => file.try_lock_shared().is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Removes the files of dead servers.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten().take(SWEPT_MAX) {
            let Ok(file) = File::open(entry.path()) else { continue };
            if entry.file_name().to_str() != Some(&self.own) && file.try_lock().is_ok() {
                // Another server may have removed it first.
                if let Err(error) = fs::remove_file(entry.path()) {
                    tracing::debug!(reason = %error, "server_file_not_removed");
                }
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The sweep of the next server removes a file that is left behind.
        fs::remove_file(self.folder.join(&self.own)).ok();
    }
}

/// Whether the open file is the one with that name.
pub(crate) fn is_same(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}
