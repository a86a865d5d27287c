//! Backup and restore of a state directory.
//!
//! ```text
//! state directory --backup--> TARGET.partial -> every database by one statement, small files by copy, audit last
//!                             -> manifest with digests -> synced -> renamed to TARGET, which must not exist
//! TARGET --restore--> STATE.restoring -> every digest, layout and database checked -> what must not return is removed
//!                     -> synced -> renamed to the state directory, which must be empty or absent
//! ```
//! A backup is taken while servers run: each database is copied by `VACUUM INTO`, which sees one moment of it. The audit
//! is copied last, so it contains every decision whose effect is in the databases. Both directions are all or nothing.
//!
//! After a restore, no approval and no idempotency record of before counts: open approvals are voided, and idempotency
//! records are not in a backup. Not in a backup either: the files of persistent sandboxes, which programs change at any time, and therefore their records; caches; locks and sockets.

mod copy;
mod item;
mod manifest;
mod restore;
#[cfg(test)]
mod tests;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub use self::manifest::Manifest;
pub use self::restore::{Restored, restore};
use crate::store::StoreError;

/// Why a backup or a restore was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is nothing to back up.
    #[error("there is no state directory {0}")]
    NoState(PathBuf),
    /// The place of the backup is taken.
    #[error("{0} exists: a backup never overwrites anything; name a path that does not exist")]
    Exists(PathBuf),
    /// The state directory has something in it.
    #[error(
        "the state directory {0} is not empty: restore into one that is empty or does not exist (--state-dir)"
    )]
    NotEmpty(PathBuf),
    /// The folder is no backup.
    #[error("{0} is no backup: {1}")]
    NoBackup(PathBuf, String),
    /// A file is not as it was backed up.
    #[error("{0} of the backup is damaged: {1}; nothing was restored")]
    Damaged(String, String),
    /// A database is of a newer version.
    #[error(
        "{file}: its layout is {found}, and this program knows {known}; use the newer version of Palisade"
    )]
    TooNew {
        /// The database.
        file: String,
        /// Its layout.
        found: i64,
        /// The newest known one.
        known: i64,
    },
    /// Reading or writing failed.
    #[error("cannot {step}: {error}")]
    Io {
        /// What was being done.
        step: String,
        /// Why it failed.
        error: io::Error,
    },
    /// A database failed.
    #[error("{0}: {1}")]
    Store(String, StoreError),
}

fn io_error(step: impl Into<String>) -> impl FnOnce(io::Error) -> BackupError {
    let step = step.into();
    |error| BackupError::Io { step, error }
}

/// Backs a state directory up to a path that does not exist yet.
pub fn back_up(state_dir: &Path, target: &Path, now_ms: u64) -> Result<Manifest, BackupError> {
    if !state_dir.is_dir() {
        return Err(BackupError::NoState(state_dir.to_owned()));
    }
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(target.to_owned()));
    }
    let draft = Draft::make(target, "partial")?;
    let manifest = copy::all(state_dir, &draft.path, now_ms)?;
    draft.keep(target, || BackupError::Exists(target.to_owned()))?;
    Ok(manifest)
}

/// A private folder beside its final place; removed unless it is kept.
struct Draft {
    path: PathBuf,
    is_kept: bool,
}

impl Draft {
    fn make(target: &Path, label: &str) -> Result<Self, BackupError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{label}-{}", std::process::id()));
        let path = target.with_file_name(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(io_error(format!("make {}", path.display())))?;
        Ok(Self { path, is_kept: false })
    }

    /// Gives the folder its name, if that is still free.
    fn keep(mut self, target: &Path, taken: impl FnOnce() -> BackupError) -> Result<(), BackupError> {
        sync(&self.path)?;
        match renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(taken()),
            Err(error) => return Err(io_error(format!("make {}", target.display()))(error.into())),
        }
        self.is_kept = true;
        sync(target.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left behind has a name that says what it is, and only the owner can read it.
            std::fs::remove_dir_all(&self.path).ok();
        }
    }
}

/// Makes the entries of a folder survive a power failure.
fn sync(folder: &Path) -> Result<(), BackupError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_error(format!("sync {}", folder.display())))
}
