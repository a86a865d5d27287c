//! Makes the files of a backup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::item::{
    AUDIT, AUDIT_DEPTH_MAX, AUDIT_FILES_MAX, DatabaseItem, SECRET_BYTES_MAX, SECRETS, databases,
};
use super::manifest::{self, BackedUp, Manifest};
use super::{BackupError, io_error, sync};
use crate::store::StoreError;

const OWNER_ONLY: u32 = 0o600;
/// How long servers may hold a database.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);

/// Copies everything into an empty folder.
pub(super) fn all(state_dir: &Path, to: &Path, now_ms: u64) -> Result<Manifest, BackupError> {
    let mut paths = Vec::new();
    for item in databases() {
        if state_dir.join(item.path).try_exists().unwrap_or(false) {
            make_folder_of(to, item.path)?;
            copy_database(state_dir, to, item)?;
            paths.push(item.path.to_owned());
        }
    }
    for path in SECRETS {
        if copy_file(state_dir, to, path, SECRET_BYTES_MAX)? {
            paths.push(path.to_owned());
        }
    }
    copy_audit(state_dir, to, AUDIT, &mut paths)?;
    let files: Result<Vec<_>, _> = paths.iter().map(|path| BackedUp::of(to, path)).collect();
    let manifest = Manifest::new(now_ms, files?);
    let text =
        serde_json::to_vec_pretty(&manifest).map_err(|error| io_error("write the manifest")(error.into()))?;
    write(&to.join(manifest::FILE), text.as_slice())?;
    Ok(manifest)
}

fn make_folder_of(to: &Path, path: &str) -> Result<(), BackupError> {
    let Some(folder) = to.join(path).parent().map(Path::to_owned) else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(io_error(format!("make {}", folder.display())))
}

/// Copies a database at one moment: <https://sqlite.org/lang_vacuum.html#vacuuminto>.
fn copy_database(state_dir: &Path, to: &Path, item: DatabaseItem) -> Result<(), BackupError> {
    let failed = |error| BackupError::Store(item.path.to_owned(), StoreError::sql("back up")(error));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(state_dir.join(item.path), flags).map_err(failed)?;
    connection.busy_timeout(BUSY_PATIENCE).map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    check_layout(&connection, item)?;
    let target = to.join(item.path);
    // An empty file of ours is taken, so the copy is never readable for others.
    write(&target, std::io::empty())?;
    let name = target.to_str().ok_or_else(|| {
        let error = std::io::Error::new(ErrorKind::InvalidInput, "the path is not UTF-8");
        io_error(format!("make {}", target.display()))(error)
    })?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(failed)?;
    let synced = File::open(&target).and_then(|file| file.sync_all());
    synced.map_err(io_error(format!("sync {}", item.path)))
}

/// A program must not copy what it does not know.
pub(super) fn check_layout(connection: &Connection, item: DatabaseItem) -> Result<i64, BackupError> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| BackupError::Store(item.path.to_owned(), StoreError::sql("open")(error)))?;
    match found > item.layout {
        true => Err(BackupError::TooNew { file: item.path.to_owned(), found, known: item.layout }),
        false => Ok(found),
    }
}

/// Copies a small file, if there is one. Returns whether there was.
fn copy_file(from: &Path, to: &Path, path: &str, bytes_max: u64) -> Result<bool, BackupError> {
    let failed = |error| io_error(format!("copy {path}"))(error);
    let found = match from.join(path).symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    if !found.is_file() || found.len() > bytes_max {
        return Err(failed(std::io::Error::other("it is not the file that a server made")));
    }
    let content = read_until(&from.join(path), found.len()).map_err(failed)?;
    make_folder_of(to, path)?;
    write(&to.join(path), whole_lines(path, &content))?;
    Ok(true)
}

/// An entry of the audit that is being written is left out; the entries before it are a whole chain.
fn whole_lines<'c>(path: &str, content: &'c [u8]) -> &'c [u8] {
    match path.ends_with(".jsonl") {
        true => &content[..content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)],
        false => content,
    }
}

/// Copies the audit: every plain file, in the order of names.
fn copy_audit(from: &Path, to: &Path, folder: &str, paths: &mut Vec<String>) -> Result<(), BackupError> {
    let failed = |error| io_error(format!("list {folder}"))(error);
    let entries = match std::fs::read_dir(from.join(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if let Some(name) = entry.file_name().to_str() {
            names.push((format!("{folder}/{name}"), kind));
        }
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    for (path, kind) in names {
        if kind.is_dir() && path.matches('/').count() < AUDIT_DEPTH_MAX {
            copy_audit(from, to, &path, paths)?;
        } else if kind.is_file() && super::item::is_of_audit(&path) && copy_file(from, to, &path, u64::MAX)? {
            paths.push(path);
        }
        if paths.len() > AUDIT_FILES_MAX {
            return Err(failed(std::io::Error::other("the audit has too many files")));
        }
    }
    Ok(())
}

fn read_until(path: &Path, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a new file that only the owner can read, and syncs it.
pub(super) fn write(path: &Path, mut content: impl Read) -> Result<(), BackupError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path);
    let written = made.and_then(|mut file| {
        std::io::copy(&mut content, &mut file)?;
        file.sync_all()
    });
    written.map_err(io_error(format!("write {}", path.display())))?;
    path.parent().map_or(Ok(()), sync)
}
