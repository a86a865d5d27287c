//! Reads what the receipt of a run needs, for an operator: the run of any principal, with or without a server.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::record::Record;
use super::{StoreConfig, StoreError, schema};
use crate::audit::RunProof;
use crate::runs::RunId;

/// `None` if there is no such run, or nothing recorded it.
pub(crate) fn proof_of(state_dir: &Path, id: &RunId) -> Result<Option<RunProof>, StoreError> {
    let path = StoreConfig::new(state_dir).folder().join(schema::FILE);
    if !path.exists() {
        return Ok(None);
    }
    // Not read-only: after a server was killed, the first connection recovers the write-ahead log, which writes.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || {
        let connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(schema::BUSY_PATIENCE)?;
        let select = "SELECT record FROM runs WHERE id = ?1";
        let row = |row: &rusqlite::Row<'_>| row.get::<_, Option<String>>(0);
        connection.query_row(select, params![id.as_str()], row).optional()
    };
    let record = read().map_err(StoreError::sql("read"))?.flatten();
    let record = record.and_then(|text| serde_json::from_str::<Record>(&text).ok());
    Ok(record.and_then(|mut record| record.take_proof()))
}
