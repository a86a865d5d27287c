//! Calls with an idempotency key: the same call is carried out once, and its answer is given again.
//!
//! ```text
//! recall -> unknown -> (admitted by policy) -> claim -> carried out -> end: the answer is kept for a day
//!        -> in progress: waits for its end, here or in another server
//!        -> ended: its answer     other arguments: idempotency_conflict     its server died: idempotency_interrupted
//! ```
//! The record is on the disk before the call has an effect. A call whose end was not recorded is never carried out
//! again. A key belongs to one principal and one tool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use policy::Caller;
use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::Value;
use sha2::digest::Update;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::database::{Database, Form};
use super::desk::{Desk, Kept, WorkError};
use super::leases::QUOTA_EXCEEDED;
use super::roll::Roll;
use super::{Gatekeeper, unusable};
use crate::clock::unix_ms;
use crate::result::RunError;
use crate::runs::RunId;
use crate::store::StoreError;

/// The code of a key that was used for another call.
pub const IDEMPOTENCY_CONFLICT: &str = "idempotency_conflict";
/// The code of a call whose server ended before it told the end of the call.
pub const IDEMPOTENCY_INTERRUPTED: &str = "idempotency_interrupted";
/// The code of a call that is still in progress when the caller's patience ends.
pub const IDEMPOTENCY_RUNNING: &str = "idempotency_running";
/// The longest key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

const KEPT_S: u64 = 24 * 60 * 60;
/// Records of one principal.
const RECORDS_MAX: u64 = 4096;
/// The largest answer that is kept. A larger one is looked up by its run.
const ANSWER_BYTES_MAX: usize = 32 << 10;
/// How often the record of a call in another server is read.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const RETRY_MS: u64 = 1000;

const FORM: Form = Form {
    file: "idempotency.db",
    layout: 1,
    schema: "
CREATE TABLE IF NOT EXISTS records (
    principal TEXT NOT NULL, tool TEXT NOT NULL, key TEXT NOT NULL, given BLOB NOT NULL, arguments BLOB NOT NULL,
    server TEXT NOT NULL, run_id TEXT, created INTEGER NOT NULL, state INTEGER NOT NULL, answer TEXT,
    PRIMARY KEY (principal, tool, key)
) STRICT;
CREATE INDEX IF NOT EXISTS records_of ON records (principal, created);",
    synchronous: "FULL",
    forget: |change| expire(change, unix_ms() / 1000),
};

/// States of a record.
const BEGUN: i64 = 0;
const ENDED: i64 = 1;
const INTERRUPTED: i64 = 2;

/// A key that a client chose for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// A key of 1 to [`IDEMPOTENCY_KEY_BYTES_MAX`] visible ASCII characters.
    pub fn parse(text: &str) -> Option<Self> {
        let is_fit = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&text.len());
        (is_fit && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }
}

/// A call with a key.
#[derive(Debug, Clone)]
pub struct KeyedCall {
    principal: String,
    tool: String,
    key: String,
    given: [u8; 32],
    arguments: [u8; 32],
}

impl KeyedCall {
    /// A call of that tool. It is the same as another one if the arguments are the same, as they were given or as they
    /// are carried out: the name of a sandbox leads nowhere once the call has closed it.
    pub fn new(caller: &Caller, tool: &str, key: &IdempotencyKey, given: &Value, arguments: &Value) -> Self {
        Self {
            principal: caller.principal.as_str().to_owned(),
            tool: tool.to_owned(),
            key: key.0.clone(),
            given: digest(given),
            arguments: digest(arguments),
        }
    }
}

/// What is known of a call that was made before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recalled {
    /// Its answer.
    Answer(String),
    /// Its answer is that of this run.
    Run(RunId),
    /// Its answer was too large to be kept.
    Forgotten,
}

/// The right to carry out a call. Dropping it leaves the call as interrupted.
#[must_use]
#[derive(Debug)]
pub struct Claim {
    desk: Arc<Desk<Records>>,
    ended: Arc<Notify>,
    call: Option<KeyedCall>,
}

/// The end of a claimed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimEnd {
    /// It had no effect, and may be made again.
    NoEffect,
    /// Its answer.
    Answer(String),
    /// Its answer is that of its run.
    OfRun,
}

/// The records of a state directory.
#[derive(Debug)]
pub(crate) struct Records {
    database: Database,
    roll: Arc<Roll>,
}

/// The part of the gatekeeper that remembers calls.
#[derive(Debug)]
pub(super) struct Memory {
    desk: Arc<Desk<Records>>,
    /// Told whenever a call of this server ends.
    ended: Arc<Notify>,
}

/// A record as it is found.
enum RecordState {
    Nothing,
    Other,
    Begun(Option<RunId>),
    Interrupted(Option<RunId>),
    Ended(Recalled),
}

impl Memory {
    pub(super) fn new(gate: &Path, roll: Arc<Roll>) -> Self {
        let records = Records { database: Database::new(gate, FORM), roll };
        Self { desk: Arc::new(Desk::new(records)), ended: Arc::default() }
    }
}

impl Gatekeeper {
    /// What is known of a call, or `None` if there was none with this key. Waits for a call in progress.
    pub async fn recall(&self, call: &KeyedCall, patience: Duration) -> Result<Option<Recalled>, RunError> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.memory.ended.notified();
            let asked = call.clone();
            let found = self.memory.desk.ask(move |records| records.find(&asked, unix_ms() / 1000)).await;
            let run_id = match found.map_err(|error: StoreError| unusable(&error))? {
                RecordState::Nothing => return Ok(None),
                RecordState::Other => return Err(conflict()),
                RecordState::Interrupted(run_id) => return Err(interrupted(run_id.as_ref())),
                RecordState::Ended(recalled) => return Ok(Some(recalled)),
                RecordState::Begun(run_id) => run_id,
            };
            if Instant::now() >= deadline {
                return Err(still_running(run_id.as_ref()));
            }
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_PAUSE)) => {}
            }
        }
    }

    /// Records a call before it has an effect. `None` if another one was faster.
    pub async fn claim(&self, call: KeyedCall, run_id: Option<&RunId>) -> Result<Option<Claim>, RunError> {
        let Memory { desk, ended } = &self.memory;
        let (desk, ended) = (Arc::clone(desk), Arc::clone(ended));
        let run_id = run_id.map(|id| id.as_str().to_owned());
        let claimed = self.memory.desk.ask(move |records| {
            let added = records.add(&call, run_id.as_deref(), unix_ms() / 1000)?;
            // If the caller is gone when this arrives, dropping it leaves the call as interrupted.
            Ok(added.then(|| Claim { desk, ended, call: Some(call) }))
        });
        claimed.await.map_err(|error| match error {
            NotAdded::Full { retry_after_s } => full(retry_after_s),
            NotAdded::Failed(error) => unusable(&error),
        })
    }
}

impl Claim {
    /// Records how the call ended.
    pub async fn end(mut self, end: ClaimEnd) {
        let Some(call) = self.call.take() else { return };
        let ended = self.desk.ask(move |records| records.end(&call, end)).await;
        if let Err(error) = ended {
            // The record stays as begun: the call is not carried out again, and waits for this server to end.
            tracing::error!(reason = %error, "idempotency_not_recorded");
        }
        self.ended.notify_waiters();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let ended = Arc::clone(&self.ended);
        self.desk.nudge(move |records| {
            if let Err(error) = records.interrupt(&call) {
                tracing::error!(reason = %error, "idempotency_not_recorded");
            }
            ended.notify_waiters();
        });
    }
}

/// Why a record was not added.
#[derive(Debug)]
enum NotAdded {
    Full { retry_after_s: u64 },
    Failed(StoreError),
}

impl WorkError for NotAdded {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_busy())
    }
}

impl Kept for Records {
    fn database(&self) -> &Database {
        &self.database
    }
}

impl From<StoreError> for NotAdded {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Records {
    fn find(&self, call: &KeyedCall, unix_s: u64) -> Result<RecordState, StoreError> {
        let servers = self.roll.servers()?;
        self.database.change(|change| {
            let select = "SELECT given, arguments, server, run_id, state, answer FROM records
                WHERE principal = ?1 AND tool = ?2 AND key = ?3 AND created > ?4";
            let found = change.prepare_cached(select).and_then(|mut select| {
                let row = |row: &rusqlite::Row<'_>| {
                    let digests = (row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?);
                    let run_id = row.get::<_, Option<String>>(3)?.and_then(|id| RunId::parse(&id));
                    let answer = row.get::<_, Option<String>>(5)?;
                    Ok((digests, row.get::<_, String>(2)?, run_id, row.get::<_, i64>(4)?, answer))
                };
                let KeyedCall { principal, tool, key, .. } = call;
                select.query_row(params![principal, tool, key, oldest(unix_s)], row).optional()
            });
            let Some(((given, arguments), server, run_id, state, answer)) = found.map_err(failed)? else {
                return Ok(RecordState::Nothing);
            };
            if given != call.given && arguments != call.arguments {
                return Ok(RecordState::Other);
            }
            Ok(match (state, answer, run_id) {
                (ENDED, Some(answer), _) => RecordState::Ended(Recalled::Answer(answer)),
                (ENDED, None, Some(run_id)) => RecordState::Ended(Recalled::Run(run_id)),
                (ENDED, None, None) => RecordState::Ended(Recalled::Forgotten),
                (BEGUN, _, run_id) if servers.is_alive(&server) => RecordState::Begun(run_id),
                (_, _, run_id) => RecordState::Interrupted(run_id),
            })
        })
    }

    fn add(&self, call: &KeyedCall, run_id: Option<&str>, unix_s: u64) -> Result<bool, NotAdded> {
        let servers = self.roll.servers()?;
        self.database.change(|change| {
            expire(change, unix_s).map_err(failed)?;
            let KeyedCall { principal, tool, key, given, arguments } = call;
            let select = "SELECT count(*), coalesce(min(created), 0) FROM records WHERE principal = ?1";
            let counted = change.prepare_cached(select).and_then(|mut select| {
                let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
                select.query_row(params![principal], row)
            });
            let (count, first) = counted.map_err(failed)?;
            if count >= RECORDS_MAX as i64 {
                let free = u64::try_from(first).unwrap_or(0).saturating_add(KEPT_S);
                return Err(NotAdded::Full { retry_after_s: free.saturating_sub(unix_s).max(1) });
            }
            let insert =
                "INSERT INTO records (principal, tool, key, given, arguments, server, run_id, created, state)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0) ON CONFLICT DO NOTHING";
            let added = change.prepare_cached(insert).and_then(|mut insert| {
                let (given, arguments) = (given.as_slice(), arguments.as_slice());
                insert.execute(params![
                    principal,
                    tool,
                    key,
                    given,
                    arguments,
                    servers.own(),
                    run_id,
                    sql(unix_s)
                ])
            });
            Ok(added.map_err(failed)? > 0)
        })
    }

    fn end(&self, call: &KeyedCall, end: ClaimEnd) -> Result<(), StoreError> {
        let answer = match end {
            ClaimEnd::NoEffect => return self.remove(call),
            ClaimEnd::Answer(answer) => Some(answer).filter(|answer| answer.len() <= ANSWER_BYTES_MAX),
            ClaimEnd::OfRun => None,
        };
        self.set(call, ENDED, answer.as_deref())
    }

    fn interrupt(&self, call: &KeyedCall) -> Result<(), StoreError> {
        self.set(call, INTERRUPTED, None)
    }

    fn set(&self, call: &KeyedCall, state: i64, answer: Option<&str>) -> Result<(), StoreError> {
        self.database.change(|change| {
            let update =
                "UPDATE records SET state = ?4, answer = ?5 WHERE principal = ?1 AND tool = ?2 AND key = ?3";
            let KeyedCall { principal, tool, key, .. } = call;
            let updated = change
                .prepare_cached(update)
                .and_then(|mut update| update.execute(params![principal, tool, key, state, answer]));
            updated.map(drop).map_err(failed)
        })
    }

    fn remove(&self, call: &KeyedCall) -> Result<(), StoreError> {
        self.database.change(|change| {
            let delete = "DELETE FROM records WHERE principal = ?1 AND tool = ?2 AND key = ?3";
            let KeyedCall { principal, tool, key, .. } = call;
            let deleted = change
                .prepare_cached(delete)
                .and_then(|mut delete| delete.execute(params![principal, tool, key]));
            deleted.map(drop).map_err(failed)
        })
    }
}

fn expire(change: &Transaction<'_>, unix_s: u64) -> rusqlite::Result<()> {
    change
        .prepare_cached("DELETE FROM records WHERE created <= ?1")?
        .execute(params![oldest(unix_s)])
        .map(drop)
}

/// Records of this second or before are too old.
fn oldest(unix_s: u64) -> i64 {
    sql(unix_s).saturating_sub(sql(KEPT_S))
}

fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::sql("the idempotency records")(error)
}

/// The digest of a value in which the order of properties does not matter.
pub(super) fn digest(value: &Value) -> [u8; 32] {
    let mut hasher = Sha256::new();
    feed(&mut hasher, value);
    hasher.finalize().into()
}

/// Each value begins with its kind and has an end or a length, so that different values never read the same.
pub(crate) fn feed(hasher: &mut impl Update, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            hasher.update(format!("o{};", fields.len()).as_bytes());
            for (name, value) in fields {
                hasher.update(format!("{};{name}", name.len()).as_bytes());
                feed(hasher, value);
            }
        }
        Value::Array(items) => {
            hasher.update(format!("a{};", items.len()).as_bytes());
            items.iter().for_each(|item| feed(hasher, item));
        }
        Value::String(text) => hasher.update(format!("s{};{text}", text.len()).as_bytes()),
        other => hasher.update(format!("v{other};").as_bytes()),
    }
}

fn conflict() -> RunError {
    let message = "this idempotency key was used for a call with other arguments";
    RunError::new(IDEMPOTENCY_CONFLICT, message).remedy("use a new key for a new call")
}

fn interrupted(run_id: Option<&RunId>) -> RunError {
    let which = run_id.map(|id| format!(" ({id})")).unwrap_or_default();
    let message = format!(
        "the server ended while it carried out this call{which}, so its effect is unknown; it is not carried out again"
    );
    RunError::new(IDEMPOTENCY_INTERRUPTED, message)
        .remedy("see what the first call left behind; to make the call again, use a new key")
}

fn still_running(run_id: Option<&RunId>) -> RunError {
    let which = run_id.map(|id| format!(" as {id}")).unwrap_or_default();
    let mut error = RunError::new(
        IDEMPOTENCY_RUNNING,
        format!("the first call with this key is still in progress{which}"),
    )
    .remedy("make the same call with the same key again");
    error.retryable = true;
    error.retry_after_ms = Some(RETRY_MS);
    error
}

fn full(retry_after_s: u64) -> RunError {
    let message = format!(
        "the quota idempotency_keys is used up: {RECORDS_MAX} of {RECORDS_MAX}; it is free again in {retry_after_s} s"
    );
    let mut error = RunError::new(QUOTA_EXCEEDED, message).remedy("make the call without a key, or wait");
    error.retryable = true;
    error.retry_after_ms = Some(retry_after_s.saturating_mul(1000));
    error
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
