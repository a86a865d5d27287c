//! Looks at counters without changing them, for `palisade policy explain`.

use std::path::Path;

use policy::{Decimal, Limit, Principal};
use rusqlite::{OptionalExtension, params};

use super::record::open_to_read;
use crate::clock::unix_ms;
use crate::store::StoreError;

const READ: &str = "SELECT started, value FROM counters
    WHERE policy = ?1 AND tool = ?2 AND counter = ?3 AND span = ?4 AND subject = ?5";

/// What a counter has reached in its current window. Nothing was counted if there is no counter.
pub fn counted(
    state_dir: &Path,
    policy: &str,
    principal: &Principal,
    limit: &Limit,
) -> Result<Decimal, StoreError> {
    let Some(connection) = open_to_read(state_dir)? else { return Ok(Decimal::ZERO) };
    let subject = if limit.is_shared { "" } else { principal.as_str() };
    let key = params![policy, limit.tool, limit.counter, limit.window.name(), subject];
    let row = connection
        .query_row(READ, key, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()
        .map_err(StoreError::sql("the ledger"))?;
    let Some((started, value)) = row else { return Ok(Decimal::ZERO) };
    let is_current =
        u64::try_from(started).is_ok_and(|started| started >= limit.window.start(unix_ms() / 1000));
    match Decimal::parse(&value) {
        Some(value) => Ok(if is_current { value } else { Decimal::ZERO }),
        None => Err(StoreError::Corrupt("a counter is not a number".to_owned())),
    }
}
