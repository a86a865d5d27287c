//! Makes a state directory of a backup.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::copy::{check_layout, write};
use super::item::{self, DatabaseItem, databases};
use super::manifest::{BackedUp, Manifest};
use super::{BackupError, Draft, io_error};
use crate::gatekeeper::{ApprovalStore, KeyState, Keys};
use crate::store::StoreError;

/// What a restore brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The list of the backup.
    pub manifest: Manifest,
    /// Keys that are in force now, also those that were revoked after the backup.
    pub keys_in_force: usize,
    /// Records of persistent sandboxes that were left out, because their files are not in a backup.
    pub sandboxes_left_out: u64,
}

/// Makes a state directory of a backup. It must be empty or absent, so no server uses it.
pub fn restore(backup: &Path, state_dir: &Path, now_ms: u64) -> Result<Restored, BackupError> {
    let manifest = Manifest::read(backup)?;
    check_empty(state_dir)?;
    let draft = Draft::make(state_dir, "restoring")?;
    for file in &manifest.files {
        copy(backup, &draft.path, file)?;
    }
    let mut sandboxes_left_out = 0;
    for item in databases() {
        if manifest.files.iter().any(|file| file.path == item.path) {
            sandboxes_left_out += void(&draft.path, item)?;
        }
    }
    if manifest.files.iter().any(|file| file.path == item::APPROVALS) {
        let voided = ApprovalStore::new(&draft.path).void_all(now_ms);
        voided.map_err(|error| BackupError::Damaged(item::APPROVALS.to_owned(), error.to_string()))?;
    }
    let keys = Keys::new(&draft.path)
        .list()
        .map_err(|error| BackupError::Damaged("gate/keys.db".to_owned(), error.to_string()))?;
    let keys_in_force = keys.iter().filter(|key| key.state(now_ms) == KeyState::InForce).count();
    // An empty directory is in the way of the new name. One that a server uses meanwhile is not empty any more.
    match std::fs::remove_dir(state_dir) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(_) => return Err(BackupError::NotEmpty(state_dir.to_owned())),
    }
    draft.keep(state_dir, || BackupError::NotEmpty(state_dir.to_owned()))?;
    Ok(Restored { manifest, keys_in_force, sandboxes_left_out })
}

fn check_empty(state_dir: &Path) -> Result<(), BackupError> {
    let not_empty = || BackupError::NotEmpty(state_dir.to_owned());
    match state_dir.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = state_dir.parent().filter(|above| !above.as_os_str().is_empty());
            above.map_or(Ok(()), |above| {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
                made.map_err(io_error(format!("make {}", above.display())))
            })
        }
        Err(error) => Err(io_error(format!("look at {}", state_dir.display()))(error)),
        Ok(found) if !found.is_dir() => Err(not_empty()),
        Ok(_) => {
            let mut entries =
                std::fs::read_dir(state_dir).map_err(io_error(format!("list {}", state_dir.display())))?;
            if entries.next().is_some() { Err(not_empty()) } else { Ok(()) }
        }
    }
}

/// Copies a file, which must be as the manifest says.
fn copy(backup: &Path, to: &Path, file: &BackedUp) -> Result<(), BackupError> {
    let damaged = |reason: String| BackupError::Damaged(file.path.clone(), reason);
    let mut options = File::options();
    // A link would lead out of the backup.
    options.read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let opened = options.open(backup.join(&file.path)).map_err(|error| damaged(error.to_string()))?;
    let target = to.join(&file.path);
    if let Some(folder) = target.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(io_error(format!("make {}", folder.display())))?;
    }
    write(&target, opened.take(file.size_bytes.saturating_add(1)))?;
    match BackedUp::of(to, &file.path)? == *file {
        true => Ok(()),
        false => Err(damaged("its content is not that of the backup".to_owned())),
    }
}

/// Examines a database and removes what must not come back. Returns the number of records of sandboxes.
fn void(folder: &Path, item: DatabaseItem) -> Result<u64, BackupError> {
    let failed = |error| BackupError::Store(item.path.to_owned(), StoreError::sql("restore")(error));
    let path = folder.join(item.path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    check_layout(&connection, item)?;
    let found: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(BackupError::Damaged(item.path.to_owned(), found));
    }
    let table = item.void.strip_prefix("DELETE FROM ").and_then(|rest| rest.strip_suffix(';'));
    let Some(table) = table else { return Ok(0) };
    let exists: bool = connection
        .query_row(
            "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = ?1",
            [table],
            |row| row.get(0),
        )
        .map_err(failed)?;
    if !exists {
        return Ok(0);
    }
    let removed = connection.execute(item.void, []).map_err(failed)?;
    drop(connection);
    // SQLite may have made the file anew.
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, private).map_err(io_error(format!("protect {}", item.path)))?;
    let synced = File::open(&path).and_then(|file| file.sync_all());
    synced.map_err(io_error(format!("sync {}", item.path)))?;
    Ok(if table == "leases" { 0 } else { removed as u64 })
}
