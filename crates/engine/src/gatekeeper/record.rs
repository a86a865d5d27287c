//! The record of decisions: which calls were made and what became of them, for `palisade policy learn`.
//!
//! Decisions are counted in memory and written once a second by the upkeep of the program, so a call costs no write. The
//! record has names of arguments and the language, never other values. It is bounded: per second in memory, per caller
//! and hour in variety, and in all by age and number of rows. A killed process loses at most the last second.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};
use serde_json::Value;

use super::database::BUSY_PATIENCE;
use super::{JudgedCall, ledger};
use crate::clock::unix_ms;
use crate::store::StoreError;

const HOUR_MS: u64 = 3_600_000;
/// How long decisions are kept.
const KEPT_MS: u64 = 31 * 24 * HOUR_MS;
/// Most rows; the oldest hours are removed first.
const ROWS_MAX: i64 = 50_000;
/// Most different decisions between two writes.
const TALLIES_MAX: usize = 4096;
/// Most different decisions of one caller in an hour; further ones are recorded without the names of arguments.
const VARIETY_MAX: u32 = 256;
/// Most names of arguments that are recorded, and the length of the longest.
const NAMES_MAX: usize = 24;
const NAME_BYTES_MAX: usize = 32;
/// Stands for names of arguments that are not recorded.
const ANY: &str = "*";

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS decisions (
    hour INTEGER NOT NULL, principal TEXT NOT NULL, label TEXT NOT NULL, policy TEXT NOT NULL, tool TEXT NOT NULL,
    language TEXT NOT NULL, arguments TEXT NOT NULL, verdict TEXT NOT NULL, rule TEXT NOT NULL,
    times INTEGER NOT NULL, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    PRIMARY KEY (hour, principal, label, policy, tool, language, arguments, verdict, rule)
) STRICT, WITHOUT ROWID;";
const ADD: &str = "INSERT INTO decisions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
    ON CONFLICT DO UPDATE SET times = times + excluded.times, first_ms = min(first_ms, excluded.first_ms),
    last_ms = max(last_ms, excluded.last_ms)";
const READ: &str =
    "SELECT principal, label, policy, tool, language, arguments, verdict, rule, times, first_ms, last_ms
    FROM decisions WHERE last_ms >= ?1 ORDER BY tool, language, arguments, verdict, rule, label";
const FORGET_OLD: &str = "DELETE FROM decisions WHERE hour < ?1";
const FORGET_MANY: &str =
    "DELETE FROM decisions WHERE hour <= (SELECT hour FROM decisions ORDER BY hour DESC LIMIT 1 OFFSET ?1)
    AND hour < (SELECT max(hour) FROM decisions)";

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decided {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
    /// It needed an approval.
    NeedsApproval,
}

impl Decided {
    const ALL: [Self; 3] = [Self::Allowed, Self::Denied, Self::NeedsApproval];

    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NeedsApproval => "approval",
        }
    }
}

/// Equal decisions of an hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The principal of the caller.
    pub principal: String,
    /// Its label.
    pub label: String,
    /// The policy, or nothing if none binds the caller.
    pub policy: String,
    /// The tool.
    pub tool: String,
    /// The language, or nothing.
    pub language: String,
    /// Names of the arguments, in order; `None` if they were not recorded.
    pub arguments: Option<Vec<String>>,
    /// What became of the calls.
    pub verdict: Decided,
    /// The rule that decided, or nothing.
    pub rule: String,
    /// How many calls.
    pub times: u64,
    /// The first of them, in milliseconds since 1970.
    pub first_ms: u64,
    /// The last of them.
    pub last_ms: u64,
}

/// Counts decisions until they are written.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    is_on: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    tallies: HashMap<u64, (u64, Decision)>,
    /// Different decisions of each caller, by principal, in this hour.
    variety: HashMap<String, u32>,
    hour: u64,
    /// Decisions that found no room.
    lost: u64,
}

impl Record {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join("gate"), is_on: AtomicBool::new(false), held: Mutex::default() }
    }

    /// Begins to count. Something must call [`Self::write`] from now on.
    pub fn begin(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    pub(super) fn note(&self, call: &JudgedCall<'_>, policy: &str, (verdict, rule): (Decided, &str)) {
        if self.is_on.load(Ordering::Relaxed) {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.note(call, policy, (verdict, rule), unix_ms());
        }
    }

    /// Writes what was counted.
    pub fn write(&self) -> Result<(), StoreError> {
        let (tallies, lost) = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut held.tallies), std::mem::take(&mut held.lost))
        };
        if lost > 0 {
            tracing::warn!(lost, "decisions_not_recorded");
        }
        if tallies.is_empty() {
            return Ok(());
        }
        let mut connection = ledger::open(&self.folder)?;
        let written = write(&mut connection, tallies.values()).map_err(StoreError::sql("the record"));
        if written.is_err() {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.tallies.is_empty() {
                held.tallies = tallies;
            }
        }
        written
    }
}

impl Held {
    fn note(&mut self, call: &JudgedCall<'_>, policy: &str, (verdict, rule): (Decided, &str), now_ms: u64) {
        let hour = now_ms / HOUR_MS;
        if self.hour != hour {
            self.hour = hour;
            self.variety.clear();
        }
        let principal = call.caller.principal.as_str();
        let tool = call.names.last().copied().unwrap_or_default();
        let mut names = names(call.arguments);
        let mut key =
            fingerprint(&(hour, principal, policy, tool, language(call.arguments), &names, verdict, rule));
        if !self.tallies.contains_key(&key) {
            let variety = self.variety.entry(principal.to_owned()).or_default();
            *variety = variety.saturating_add(1);
            if *variety > VARIETY_MAX {
                names = None;
                key = fingerprint(&(hour, principal, policy, tool, "", &names, verdict, rule));
            }
        }
        let is_full = self.tallies.len() >= TALLIES_MAX;
        match self.tallies.entry(key) {
            Entry::Occupied(mut known) => {
                let (_, tally) = known.get_mut();
                tally.times += 1;
                tally.last_ms = now_ms;
            }
            Entry::Vacant(_) if is_full => self.lost += 1,
            Entry::Vacant(place) => {
                let language = names.as_ref().map_or("", |_| language(call.arguments)).to_owned();
                place.insert((
                    hour,
                    Decision {
                        principal: principal.to_owned(),
                        label: call.caller.label.to_string(),
                        policy: policy.to_owned(),
                        tool: tool.to_owned(),
                        language,
                        arguments: names.map(|names| names.into_iter().map(str::to_owned).collect()),
                        verdict,
                        rule: rule.to_owned(),
                        times: 1,
                        first_ms: now_ms,
                        last_ms: now_ms,
                    },
                ));
            }
        }
    }
}

fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Names of the arguments, in order. `None` if one of them could carry data.
pub(crate) fn names(arguments: &Value) -> Option<Vec<&str>> {
    let Value::Object(map) = arguments else { return Some(Vec::new()) };
    let is_plain = |name: &str| {
        name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    if map.len() > NAMES_MAX || !map.keys().all(|name| is_plain(name)) {
        return None;
    }
    let mut names: Vec<&str> = map.keys().map(String::as_str).collect();
    names.sort_unstable();
    Some(names)
}

/// The language, if it is one that exists.
pub(crate) fn language(arguments: &Value) -> &str {
    let name = arguments.get("language").and_then(Value::as_str).unwrap_or_default();
    if crate::runtimes::languages().any(|known| known == name) { name } else { "" }
}

fn write<'t>(
    connection: &mut Connection,
    tallies: impl Iterator<Item = &'t (u64, Decision)>,
) -> rusqlite::Result<()> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change.execute_batch(SCHEMA)?;
    for (hour, tally) in tallies {
        let arguments = tally.arguments.as_ref().map_or_else(|| ANY.to_owned(), |names| names.join(","));
        let Decision { principal, label, policy, tool, language, verdict, rule, .. } = tally;
        change.prepare_cached(ADD)?.execute(params![
            signed(*hour),
            principal,
            label,
            policy,
            tool,
            language,
            arguments,
            verdict.name(),
            rule,
            signed(tally.times),
            signed(tally.first_ms),
            signed(tally.last_ms)
        ])?;
    }
    forget(&change)?;
    change.commit()
}

fn forget(change: &Transaction<'_>) -> rusqlite::Result<()> {
    let old = unix_ms().saturating_sub(KEPT_MS) / HOUR_MS;
    change.execute(FORGET_OLD, params![signed(old)])?;
    change.execute(FORGET_MANY, params![ROWS_MAX]).map(drop)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The decisions of a state directory whose last call was at this time or later.
pub fn decisions(state_dir: &Path, since_ms: u64) -> Result<Vec<Decision>, StoreError> {
    let Some(connection) = open_to_read(state_dir)? else { return Ok(Vec::new()) };
    read(&connection, since_ms).map_err(StoreError::sql("the record"))
}

fn read(connection: &Connection, since_ms: u64) -> rusqlite::Result<Vec<Decision>> {
    if !connection.table_exists(None, "decisions")? {
        return Ok(Vec::new());
    }
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let mut read = connection.prepare(READ)?;
    let rows = read.query_map(params![signed(since_ms)], |row| {
        let (arguments, verdict): (String, String) = (row.get(5)?, row.get(6)?);
        let list = || arguments.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(Decision {
            principal: row.get(0)?,
            label: row.get(1)?,
            policy: row.get(2)?,
            tool: row.get(3)?,
            language: row.get(4)?,
            arguments: (arguments != ANY).then(list),
            verdict: Decided::ALL.into_iter().find(|one| one.name() == verdict).unwrap_or(Decided::Denied),
            rule: row.get(7)?,
            times: number(row.get(8)?),
            first_ms: number(row.get(9)?),
            last_ms: number(row.get(10)?),
        })
    })?;
    rows.collect()
}

/// The gate's database of a state directory, if there is one.
pub(super) fn open_to_read(state_dir: &Path) -> Result<Option<Connection>, StoreError> {
    let path = state_dir.join("gate").join(ledger::FILE);
    if !path.exists() {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(BUSY_PATIENCE)?;
        Ok(connection)
    });
    opened.map(Some).map_err(StoreError::sql("open the ledger"))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
