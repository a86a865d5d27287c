//! The database file: opened with private permissions, migrated to the newest layout, refused if damaged or
//! newer. `keeper` opens it, and checks its layout again before each use: a newer server may migrate the file
//! while this one has it open.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::StoreConfig;
use super::error::StoreError;

/// Migrations from an empty file to the newest layout. The number of a migration is its position, counted from
/// one. Never change a released migration: add another.
const MIGRATIONS: [&str; 7] = [
    include_str!("0001_runs.sql"),
    include_str!("0002_sandboxes.sql"),
    include_str!("0003_displays.sql"),
    include_str!("0004_walls.sql"),
    include_str!("0005_display_data.sql"),
    include_str!("0006_access.sql"),
    include_str!("0007_packages.sql"),
];
/// The layout that this program reads and writes.
pub(crate) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// How long another process may hold the database.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How long another process may take to open it.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
const OPEN_PAUSE: Duration = Duration::from_millis(5);
/// The write-ahead log is truncated to this size after it was longer.
const WAL_BYTES_MAX: i64 = 16 << 20;

/// The file's name.
pub(super) const FILE: &str = "palisade.db";

/// Opens or creates the database in that folder. `is_suspect` requests an examination of every page first.
pub(super) fn open(config: &StoreConfig, is_suspect: bool) -> Result<Connection, StoreError> {
    let folder = &config.folder();
    make_folder(folder)?;
    // Only one process at a time may create the database or change its layout.
    let _turn = take_turn(&folder.join("open.lock"))?;
    let path = folder.join(FILE);
    let is_new = make_file(&path)?;
    let mut connection = connect(&path).map_err(StoreError::sql("open"))?;
    if is_suspect {
        examine(&connection)?;
    }
    migrate(&mut connection)?;
    bound(&connection, config.file_bytes_max).map_err(StoreError::sql("open"))?;
    if is_new {
        // The directory entries of new files must survive a power failure as well.
        for folder in folder.ancestors().take(2) {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io("sync"))?;
        }
    }
    Ok(connection)
}

fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(StoreError::io("make the folder"))
}

fn take_turn(path: &Path) -> Result<File, StoreError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = opened.map_err(StoreError::io("open the lock"))?;
    let started = Instant::now();
    while let Err(error) = file.try_lock() {
        match error {
            fs::TryLockError::WouldBlock if started.elapsed() < OPEN_PATIENCE => {
                std::thread::sleep(OPEN_PAUSE)
            }
            fs::TryLockError::WouldBlock => {
                return Err(StoreError::Busy("another process is opening it".to_owned()));
            }
            fs::TryLockError::Error(error) => return Err(StoreError::io("lock")(error)),
        }
    }
    Ok(file)
}

/// Creates the file with private permissions; SQLite gives its other files the same. Returns whether the file
/// is new.
fn make_file(path: &Path) -> Result<bool, StoreError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(StoreError::io("make the database")(error)),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_PATIENCE)?;
    // This takes effect only while the file is empty, so it comes before any write.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    super::write_ahead(&connection, BUSY_PATIENCE)?;
    // Acknowledged data is on the disk: https://sqlite.org/pragma.html#pragma_synchronous.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX)?;
    // A file prepared by an attacker cannot call application-defined functions:
    // https://sqlite.org/security.html.
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

fn bound(connection: &Connection, file_bytes_max: u64) -> rusqlite::Result<()> {
    let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = file_bytes_max / u64::from(page_bytes.max(1));
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

fn examine(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(StoreError::sql("examine"))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Corrupt(found)) }
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found = check_layout(connection)?;
    let done = usize::try_from(found).map_err(|_| StoreError::Corrupt(format!("its layout is {found}")))?;
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(done) {
        let mut apply = || -> rusqlite::Result<()> {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(sql)?;
            change.pragma_update(None, "user_version", i64::try_from(step + 1).unwrap_or(i64::MAX))?;
            change.commit()
        };
        apply().map_err(StoreError::sql("migrate"))?;
    }
    Ok(())
}

/// The layout of the database, unless this program does not know it. Within a transaction the answer holds until
/// its end: a migration is a transaction of its own.
pub(super) fn check_layout(connection: &Connection) -> Result<i64, StoreError> {
    let found = layout(connection).map_err(StoreError::sql("open"))?;
    if found > KNOWN { Err(StoreError::TooNew { found, known: KNOWN }) } else { Ok(found) }
}

/// Whether this program knows the layout of the database.
pub(super) fn knows_layout(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(layout(connection)? <= KNOWN)
}

fn layout(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
