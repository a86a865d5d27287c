//! Retention: which runs are kept and for how long. The oldest runs go first, in small steps, and the file
//! shrinks with them.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::rows::signed;
use super::schema;
use crate::clock;

/// The most runs purged in one step.
const RUNS_PER_STEP: usize = 32;
/// A step ends early when it has freed this much.
const BYTES_PER_STEP: u64 = 16 << 20;
/// The most pages returned to the file system in one step (16 MiB).
const PAGES_PER_STEP: u32 = 4096;

/// How much is kept. Runs in progress are never purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Older runs are purged.
    pub age_max: Duration,
    /// The oldest runs beyond this number are purged.
    pub runs_max: u64,
    /// The oldest runs are purged while logs and files together exceed this size.
    pub bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age_max: Duration::from_secs(7 * 24 * 3600), runs_max: 10_000, bytes_max: 1 << 30 }
    }
}

/// The result of one purging step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// The number of purged runs.
    pub runs: u64,
    /// Whether another step would find something.
    pub is_more: bool,
}

/// Performs one step, in one short transaction.
pub(super) fn step(connection: &Connection, retention: &Retention) -> rusqlite::Result<Purged> {
    let (mut runs, mut bytes): (u64, u64) = connection.query_row(
        "SELECT count(*), coalesce(sum(kept_bytes), 0) FROM runs INDEXED BY runs_by_age",
        [],
        |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned())),
    )?;
    let age_max_ms = u64::try_from(retention.age_max.as_millis()).unwrap_or(u64::MAX);
    let oldest_ms = clock::unix_ms().saturating_sub(age_max_ms);
    let mut purged = Purged::default();
    let mut freed = 0;
    let change = connection.unchecked_transaction()?;
    if !schema::knows_layout(&change)? {
        // The next request reports it.
        return Ok(purged);
    }
    loop {
        let Some((number, created_ms, kept)) = oldest_ended(&change)? else { break };
        if created_ms >= oldest_ms && runs <= retention.runs_max && bytes <= retention.bytes_max {
            break;
        }
        if purged.runs as usize >= RUNS_PER_STEP || freed >= BYTES_PER_STEP {
            purged.is_more = true;
            break;
        }
        change.prepare_cached("DELETE FROM runs WHERE number = ?1")?.execute(params![number])?;
        (runs, bytes) = (runs.saturating_sub(1), bytes.saturating_sub(kept));
        freed += kept;
        purged.runs += 1;
    }
    change.commit()?;
    let free: u32 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    if free > 0 {
        // Each row of the result returns one page, so all rows must be read.
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_PER_STEP})"))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        purged.is_more |= free > PAGES_PER_STEP;
        if !purged.is_more {
            // The file itself shrinks only now, when the write-ahead log is copied back.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
    }
    Ok(purged)
}

/// Number, time and size of the oldest run that has ended.
fn oldest_ended(connection: &Connection) -> rusqlite::Result<Option<(i64, u64, u64)>> {
    connection
        .prepare_cached(
            "SELECT number, created_ms, kept_bytes FROM runs INDEXED BY runs_by_age
             WHERE outcome <> 'running' ORDER BY created_ms LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get(0)?, signed(row, 1)?, signed(row, 2)?)))
        .optional()
}
