//! The ledger: counters of limits, exact over several servers of one state directory, and durable over kill -9.
//!
//! One reservation is one transaction: all counters of a call are raised and tested, or none is. The write has
//! returned before the call has an effect, so a counter is never below what ran. A database of its own keeps
//! these small writes away from the store's synced ones: without a sync per write, a power failure may lose what
//! followed the last checkpoint, but a killed process loses nothing.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::{Decimal, Denied, Limit, NamedRules, Principal, Reservation};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::database::{self, Database, Form};
use super::desk::{Kept, WorkError};
use super::quota::{EndedLease, Exceeded};
use super::roll::Roll;
use crate::store::StoreError;

pub(super) const FILE: &str = "ledger.db";
/// The layout that this program reads and writes.
pub(crate) const LAYOUT: i64 = 2;
const FORM: Form = Form {
    file: FILE,
    layout: LAYOUT,
    schema: "
CREATE TABLE IF NOT EXISTS counters (
    policy TEXT NOT NULL, tool TEXT NOT NULL, counter TEXT NOT NULL, span TEXT NOT NULL, subject TEXT NOT NULL,
    started INTEGER NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (policy, tool, counter, span, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quota_use (
    principal TEXT NOT NULL, amount TEXT NOT NULL, started INTEGER NOT NULL, value INTEGER NOT NULL,
    PRIMARY KEY (principal, amount)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    principal TEXT NOT NULL, id INTEGER NOT NULL, server TEXT NOT NULL, cpu_us INTEGER NOT NULL,
    PRIMARY KEY (principal, id)
) STRICT, WITHOUT ROWID;",
    synchronous: "NORMAL",
    forget,
};
const READ: &str = "SELECT started, value FROM counters WHERE policy = ?1 AND tool = ?2 AND counter = ?3 AND span = ?4 AND subject = ?5";
const WRITE: &str = "INSERT INTO counters (policy, tool, counter, span, subject, started, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO UPDATE SET started = excluded.started, value = excluded.value";
/// Counters that began so long ago are forgotten; the longest window is a day.
const KEPT_S: u64 = 7 * 86_400;

/// The ledger of a state directory.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) database: Database,
    pub(super) roll: Arc<Roll>,
    /// Leases that ended and are not written yet.
    pub(super) ended: Arc<Mutex<Vec<EndedLease>>>,
    /// Held while they are written: who counts a run then waits, or it would count an ended one too.
    pub(super) settling: Arc<Mutex<()>>,
}

/// What a call reserved; [`Ledger::give_back`] takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reserved(Vec<(CounterKey, u64, Decimal)>);

/// Why a reservation was not made.
#[derive(Debug)]
pub(crate) enum NotReserved {
    /// A limit is reached; it may be asked again after this time.
    Limit { denied: Denied, retry_after: Duration },
    /// A quota is used up.
    Quota(Exceeded),
    /// The ledger cannot be used, so nothing may happen.
    Failed(StoreError),
}

impl Kept for Ledger {
    fn database(&self) -> &Database {
        &self.database
    }
}

impl WorkError for NotReserved {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_busy())
    }
}

impl From<StoreError> for NotReserved {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CounterKey {
    policy: String,
    tool: String,
    counter: String,
    span: &'static str,
    /// The principal, or nothing for a counter that all callers share.
    subject: String,
}

/// A counter in the middle of a reservation.
struct Raised<'r> {
    key: CounterKey,
    started: u64,
    value: Decimal,
    added: Decimal,
    limits: Vec<&'r Limit>,
}

impl Ledger {
    /// The ledger in the folder of the gate.
    pub(crate) fn new(gate: &Path, roll: Arc<Roll>) -> Self {
        Self { database: Database::new(gate, FORM), roll, ended: Arc::default(), settling: Arc::default() }
    }

    /// The same ledger by another connection, whose transactions wait for nothing.
    pub(crate) fn hasty(&self, gate: &Path) -> Self {
        let Self { roll, ended, settling, .. } = self;
        let (roll, ended, settling) = (Arc::clone(roll), Arc::clone(ended), Arc::clone(settling));
        Self { database: Database::hasty(gate, FORM), roll, ended, settling }
    }

    /// Raises the counters of a call, if all their limits allow it.
    pub(crate) fn reserve(
        &self,
        rules: &NamedRules,
        principal: &Principal,
        wanted: &[Reservation],
        unix_s: u64,
    ) -> Result<Reserved, NotReserved> {
        if wanted.is_empty() {
            return Ok(Reserved::default());
        }
        self.database.change(|change| reserve_in(change, rules, (principal, wanted), unix_s))
    }

    /// Returns what a call reserved that had no effect. A counter that began again meanwhile is left alone.
    pub(crate) fn give_back(&self, reserved: &Reserved) -> Result<(), NotReserved> {
        self.database.change(|change| {
            for (key, started, added) in &reserved.0 {
                let Some((now_started, value)) = read(change, key)? else { continue };
                if now_started == *started
                    && let Some(value) =
                        value.checked_add(added.negated()).filter(|value| !value.is_negative())
                {
                    write(change, key, *started, value)?;
                }
            }
            Ok(())
        })
    }

    pub(super) fn ended(&self) -> std::sync::MutexGuard<'_, Vec<EndedLease>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CounterKey {
    fn new(policy: &str, principal: &Principal, limit: &Limit) -> Self {
        Self {
            policy: policy.to_owned(),
            tool: limit.tool.clone(),
            counter: limit.counter.clone(),
            span: limit.window.name(),
            subject: if limit.is_shared { String::new() } else { principal.as_str().to_owned() },
        }
    }
}

/// Raises the counters of a call in a transaction, if all their limits allow it.
pub(super) fn reserve_in(
    change: &Transaction<'_>,
    rules: &NamedRules,
    (principal, wanted): (&Principal, &[Reservation]),
    unix_s: u64,
) -> Result<Reserved, NotReserved> {
    let raised = raise(change, &rules.name, principal, wanted, unix_s)?;
    for counter in &raised {
        if let Some(limit) = counter.limits.iter().find(|limit| !limit.allows(counter.value)) {
            let retry_after =
                Duration::from_secs((counter.started + limit.window.seconds()).saturating_sub(unix_s));
            return Err(NotReserved::Limit { denied: limit.denied(), retry_after });
        }
    }
    let mut reserved = Vec::new();
    for Raised { key, started, value, added, .. } in raised {
        write(change, &key, started, value)?;
        reserved.push((key, started, added));
    }
    Ok(Reserved(reserved))
}

/// The counters after the call was added. Several limits may test one counter, and only the sum counts.
fn raise<'r>(
    change: &Transaction<'_>,
    policy: &str,
    principal: &Principal,
    wanted: &'r [Reservation],
    unix_s: u64,
) -> Result<Vec<Raised<'r>>, NotReserved> {
    let mut raised: Vec<Raised<'r>> = Vec::new();
    for Reservation { limit, amount } in wanted {
        let key = CounterKey::new(policy, principal, limit);
        let place = match raised.iter().position(|counter| counter.key == key) {
            Some(place) => place,
            None => {
                let window = limit.window.start(unix_s);
                let (started, value) = match read(change, &key)? {
                    // A clock that goes back does not open an earlier window again.
                    Some((started, value)) if started >= window => (started, value),
                    _ => (window, Decimal::ZERO),
                };
                raised.push(Raised { key, started, value, added: Decimal::ZERO, limits: Vec::new() });
                raised.len() - 1
            }
        };
        let counter = &mut raised[place];
        let sum = |to: Decimal| to.checked_add(*amount).ok_or_else(|| too_large(limit));
        (counter.value, counter.added) = (sum(counter.value)?, sum(counter.added)?);
        counter.limits.push(limit);
    }
    Ok(raised)
}

/// An amount that cannot be added exactly exceeds every limit.
fn too_large(limit: &Limit) -> NotReserved {
    NotReserved::Limit { denied: limit.denied(), retry_after: Duration::from_secs(limit.window.seconds()) }
}

fn read(change: &Transaction<'_>, key: &CounterKey) -> Result<Option<(u64, Decimal)>, NotReserved> {
    let CounterKey { policy, tool, counter, span, subject } = key;
    let row = change
        .prepare_cached(READ)
        .and_then(|mut read| {
            read.query_row(params![policy, tool, counter, span, subject], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })
            .optional()
        })
        .map_err(failed)?;
    let Some((started, text)) = row else { return Ok(None) };
    match (u64::try_from(started), Decimal::parse(&text)) {
        (Ok(started), Some(value)) => Ok(Some((started, value))),
        _ => Err(NotReserved::Failed(StoreError::Corrupt("a counter is not a number".to_owned()))),
    }
}

fn write(
    change: &Transaction<'_>,
    key: &CounterKey,
    started: u64,
    value: Decimal,
) -> Result<(), NotReserved> {
    let CounterKey { policy, tool, counter, span, subject } = key;
    let started = i64::try_from(started).unwrap_or(i64::MAX);
    let written = change.prepare_cached(WRITE).and_then(|mut write| {
        write.execute(params![policy, tool, counter, span, subject, started, value.to_string()])
    });
    written.map(drop).map_err(failed)
}

pub(super) fn failed(error: rusqlite::Error) -> NotReserved {
    NotReserved::Failed(StoreError::sql("the ledger")(error))
}

/// A connection of its own, for the record of decisions.
pub(super) fn open(folder: &Path) -> Result<Connection, StoreError> {
    database::open(folder, &FORM)
}

fn forget(change: &Transaction<'_>) -> rusqlite::Result<()> {
    let old = (crate::clock::unix_ms() / 1000).saturating_sub(KEPT_S);
    let old = i64::try_from(old).unwrap_or(i64::MAX);
    change.execute("DELETE FROM counters WHERE started < ?1", params![old])?;
    change.execute("DELETE FROM quota_use WHERE started < ?1", params![old]).map(drop)
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
