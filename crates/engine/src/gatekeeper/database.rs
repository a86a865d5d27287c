//! A database of the gatekeeper: its layout is examined in every transaction.
//!
//! Several servers share it. A newer one may change its layout while an older one has it open: the older one then
//! stops with `store_too_new` before it reads or writes a row, so it cannot go around a rule that it does not know.

use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::store::{StoreError, write_ahead};

/// How long other servers may hold a database.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// Statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 32;

/// What a file contains, and how it is written.
pub(crate) struct Form {
    pub(crate) file: &'static str,
    /// The number of the layout, in `PRAGMA user_version`.
    pub(crate) layout: i64,
    /// Makes the tables that an earlier layout does not have.
    pub(crate) schema: &'static str,
    /// `NORMAL`: a killed process loses nothing. `FULL`: a power failure loses nothing either.
    pub(crate) synchronous: &'static str,
    /// Removes what is too old, when the database is opened.
    pub(crate) forget: fn(&Transaction<'_>) -> rusqlite::Result<()>,
}

/// A database that is opened by its first use.
pub(crate) struct Database {
    folder: PathBuf,
    form: Form,
    /// How long a transaction waits for others.
    patience: Duration,
    is_open: AtomicBool,
    connection: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("file", &self.form.file).finish_non_exhaustive()
    }
}

impl Database {
    pub(crate) fn new(folder: &Path, form: Form) -> Self {
        Self::with_patience(folder, form, BUSY_PATIENCE)
    }

    /// A database whose transactions wait for nothing. It does not move its log into the database either.
    pub(crate) fn hasty(folder: &Path, form: Form) -> Self {
        Self::with_patience(folder, form, Duration::ZERO)
    }

    fn with_patience(folder: &Path, form: Form, patience: Duration) -> Self {
        let (is_open, connection) = (AtomicBool::new(false), Mutex::new(None));
        Self { folder: folder.to_owned(), form, patience, is_open, connection }
    }

    /// Whether its transactions wait for nothing.
    pub(crate) fn is_hasty(&self) -> bool {
        self.patience.is_zero()
    }

    /// Whether the next transaction need not open the file.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Opens the file, so that transactions need not.
    pub(crate) fn open(&self) -> Result<(), StoreError> {
        let mut held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            let connection = open(&self.folder, &self.form)?;
            let set = |error| StoreError::sql("open the ledger")(error);
            if self.is_hasty() {
                connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(set)?;
            }
            connection.busy_timeout(self.patience).map_err(set)?;
            *held = Some(connection);
            self.is_open.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Moves the log into the database, as far as no other connection needs it.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        self.open()?;
        let held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = held.as_ref() else { return Ok(()) };
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        done.map_err(StoreError::sql("the ledger"))
    }

    /// A number that differs after another connection has changed the database.
    pub(crate) fn data_version(&self) -> Result<i64, StoreError> {
        self.open()?;
        let held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = held.as_ref() else { return Err(StoreError::Closed) };
        let version = connection.pragma_query_value(None, "data_version", |row| row.get(0));
        version.map_err(StoreError::sql("the ledger"))
    }

    /// Performs a transaction. Whatever fails, nothing is changed.
    pub(crate) fn change<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut held = if self.is_hasty() {
            match self.connection.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Busy("another transaction".to_owned()).into());
                }
            }
        } else {
            self.open()?;
            self.connection.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let Some(mut connection) = held.take() else {
            return Err(StoreError::Busy("not open".to_owned()).into());
        };
        self.is_open.store(false, Ordering::Release);
        let done = transact(&mut connection, self.form.layout, work);
        // A connection on which something else failed than the work is opened again.
        if matches!(done, Ok(_) | Err(NotDone::Refused(_) | NotDone::Store(StoreError::Busy(_)))) {
            *held = Some(connection);
            self.is_open.store(true, Ordering::Release);
        }
        done.map_err(|error| match error {
            NotDone::Refused(error) => error,
            NotDone::Store(error) => error.into(),
        })
    }
}

/// Why a transaction was not done.
enum NotDone<E> {
    /// The work said so.
    Refused(E),
    Store(StoreError),
}

fn transact<T, E>(
    connection: &mut Connection,
    layout: i64,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, NotDone<E>> {
    let failed = |error| NotDone::Store(StoreError::sql("the ledger")(error));
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    check_layout(&change, layout).map_err(NotDone::Store)?;
    let answer = work(&change);
    // What a caller is refused changes nothing.
    if answer.is_ok() { change.commit() } else { change.rollback() }.map_err(failed)?;
    answer.map_err(NotDone::Refused)
}

/// A newer program may have changed the file while this one has it open.
fn check_layout(change: &Transaction<'_>, known: i64) -> Result<(), StoreError> {
    let found = layout(change).map_err(StoreError::sql("the ledger"))?;
    if found > known { Err(StoreError::TooNew { found, known }) } else { Ok(()) }
}

fn layout(change: &Transaction<'_>) -> rusqlite::Result<i64> {
    change.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

/// Opens a database; refuses one with a newer layout.
pub(super) fn open(folder: &Path, form: &Form) -> Result<Connection, StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(StoreError::io("make the folder"))?;
    let path = folder.join(form.file);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StoreError::io("make the ledger")(error)),
    }
    let (connection, found) = connect(&path, form).map_err(StoreError::sql("open the ledger"))?;
    let known = form.layout;
    if found > known { Err(StoreError::TooNew { found, known }) } else { Ok(connection) }
}

fn connect(path: &Path, form: &Form) -> rusqlite::Result<(Connection, i64)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    write_ahead(&connection, BUSY_PATIENCE)?;
    connection.pragma_update(None, "synchronous", form.synchronous)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = layout(&change)?;
    if found < form.layout {
        change.execute_batch(form.schema)?;
        change.pragma_update(None, "user_version", form.layout)?;
    }
    if found <= form.layout {
        (form.forget)(&change)?;
    }
    change.commit()?;
    Ok((connection, found))
}
