//! The approvals of a state directory: `gate/approvals.db`.
//!
//! Every operation is one transaction that first ends what is over by now. The right to pass is taken by one conditional
//! update. Only the user of the state directory may use the file; if others can write its folder, no approval counts.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use policy::{ApproveBy, Principal};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::Value;

use super::decide::{Approver, Choice, REASON_CHARACTERS_MAX};
use super::error::ApprovalError;
use super::record::{Approval, ApprovalDecision, ApprovalId, ApprovalState, Listed, NewApproval};
use super::{Event, note};
use crate::clock::unix_ms;
use crate::gatekeeper::FOLDER;
use crate::gatekeeper::database::{Database, Form};
use crate::store::StoreError;

/// Open approvals of one principal.
pub(super) const OPEN_OF_PRINCIPAL_MAX: u64 = 32;
/// Open approvals of a state directory.
pub(super) const OPEN_MAX: u64 = 512;
/// Approvals that are over and still kept.
const ENDED_MAX: i64 = 1000;
/// How long they are kept after their end.
const KEPT_MS: u64 = 7 * 24 * 3_600_000;
/// The most that a list has.
const LISTED_MAX: i64 = 1000;
const OTHERS_MAY_WRITE: u32 = 0o022;

/// The layout that this program reads and writes.
pub(crate) const LAYOUT: i64 = 1;
const FORM: Form = Form {
    file: "approvals.db",
    layout: LAYOUT,
    schema: "
CREATE TABLE IF NOT EXISTS approvals (
    id TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, principal TEXT NOT NULL, label TEXT NOT NULL, tool TEXT NOT NULL,
    policy TEXT NOT NULL, rule TEXT NOT NULL, reason TEXT, by_caller INTEGER NOT NULL, timeout_s INTEGER NOT NULL,
    arguments TEXT NOT NULL, preview TEXT NOT NULL, state INTEGER NOT NULL, created INTEGER NOT NULL,
    expires INTEGER NOT NULL, decided INTEGER, decided_by TEXT, decision_reason TEXT, consumed INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS approvals_open ON approvals (fingerprint) WHERE state IN (0, 1);
CREATE INDEX IF NOT EXISTS approvals_by_state ON approvals (state, expires);
CREATE INDEX IF NOT EXISTS approvals_by_fingerprint ON approvals (fingerprint, state);
CREATE TABLE IF NOT EXISTS seal (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL) STRICT;
INSERT OR IGNORE INTO seal VALUES (1, randomblob(32));",
    synchronous: "FULL",
    forget: |change| forget(change, unix_ms()),
};
const COLUMNS: &str =
    "id, fingerprint, principal, label, tool, policy, rule, reason, by_caller, preview, state, created,
    expires, decided, decided_by, decision_reason, consumed";
const INSERT: &str =
    "INSERT INTO approvals (id, fingerprint, principal, label, tool, policy, rule, reason, by_caller,
    timeout_s, arguments, preview, state, created, expires)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, ?13, ?14)";
/// Approving begins a new time; denying takes back an approval that was not used.
const DECIDE: &str = "UPDATE approvals SET state = ?2, decided = ?3, decided_by = ?4, decision_reason = ?5,
    expires = max(expires, ?3 + timeout_s * 1000)
    WHERE id = ?1 AND (state = 0 OR (state = 1 AND ?2 = 2))";
const CONSUME: &str =
    "UPDATE approvals SET state = 3, consumed = ?2 WHERE id = ?1 AND state = 1 AND expires > ?2";
/// Only while no other question about the same call is open.
const GIVE_BACK: &str =
    "UPDATE approvals SET state = 1, consumed = NULL WHERE id = ?1 AND state = 3 AND expires > ?2
    AND NOT EXISTS (SELECT 1 FROM approvals AS other
        WHERE other.fingerprint = approvals.fingerprint AND other.state IN (0, 1))";
const EXPIRE: &str = "UPDATE approvals SET state = 4 WHERE state IN (0, 1) AND expires <= ?1";
const VOID: &str = "UPDATE approvals SET state = 4, decided = ?1, decided_by = 'server', decision_reason = ?2
    WHERE state IN (0, 1) AND (?3 IS NULL OR principal = ?3)";

/// The approvals of a state directory. The command line uses it directly; a server by [`super::Approvals`].
#[derive(Debug)]
pub struct ApprovalStore {
    folder: PathBuf,
    database: Database,
}

impl ApprovalStore {
    /// The approvals of that state directory. Nothing is read or written yet.
    pub fn new(state_dir: &Path) -> Self {
        let folder = state_dir.join(FOLDER);
        let database = Database::new(&folder, FORM);
        Self { folder, database }
    }

    /// Whether anything was ever asked here.
    pub fn exists(&self) -> bool {
        self.folder.join(FORM.file).exists()
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// The approvals, the newest first.
    pub fn list(&self, which: Listed, now_ms: u64) -> Result<Vec<Approval>, ApprovalError> {
        let states = match which {
            Listed::Open => "WHERE state IN (0, 1)",
            Listed::All => "",
        };
        let query =
            format!("SELECT {COLUMNS} FROM approvals {states} ORDER BY created DESC, id LIMIT {LISTED_MAX}");
        self.change(now_ms, |change| {
            let mut select = change.prepare_cached(&query).map_err(sql)?;
            let rows = select.query_map([], approval).map_err(sql)?;
            rows.map(|row| row.map_err(sql)?.ok_or_else(unreadable)).collect()
        })
    }

    /// An approval and the arguments of its call.
    pub fn get(&self, id: &ApprovalId, now_ms: u64) -> Result<(Approval, Value), ApprovalError> {
        self.change(now_ms, |change| {
            let found = read(change, id)?;
            let select = "SELECT arguments FROM approvals WHERE id = ?1";
            let arguments: String =
                change.query_row(select, params![id.as_str()], |row| row.get(0)).map_err(sql)?;
            Ok((found, serde_json::from_str(&arguments).map_err(|_| unreadable())?))
        })
    }

    /// Decides about a pending approval. Denying also takes back an approval that no call has used yet.
    pub fn decide(
        &self,
        id: &ApprovalId,
        choice: Choice,
        (approver, reason): (&Approver, Option<&str>),
        now_ms: u64,
    ) -> Result<Approval, ApprovalError> {
        if reason.is_some_and(|reason| reason.chars().count() > REASON_CHARACTERS_MAX) {
            return Err(ApprovalError::LongReason);
        }
        let decided = self.change(now_ms, |change| {
            let before = read(change, id)?;
            approver.check(&before)?;
            let state = match choice {
                Choice::Approve => ApprovalState::Approved,
                Choice::Deny => ApprovalState::Denied,
            };
            let by = approver.label(&before);
            let row = params![id.as_str(), state.number(), signed(now_ms), by, reason];
            match change.execute(DECIDE, row).map_err(sql)? {
                0 => Err(ApprovalError::Decided { id: before.id, state: before.state }),
                _ => read(change, id),
            }
        })?;
        note(Event::Decided, &decided);
        Ok(decided)
    }

    /// Ends everything that is open, because the state directory is that of a restored backup: what was approved before
    /// may have been used since.
    pub fn void_all(&self, now_ms: u64) -> Result<usize, ApprovalError> {
        self.void(None, "a backup was restored", now_ms)
    }

    /// Ends what is open for a principal.
    pub fn void_of(&self, principal: &Principal, now_ms: u64) -> Result<usize, ApprovalError> {
        if !self.exists() {
            return Ok(0);
        }
        self.void(Some(principal), "the key of the caller has ended", now_ms)
    }

    fn void(&self, principal: Option<&Principal>, why: &str, now_ms: u64) -> Result<usize, ApprovalError> {
        self.change(now_ms, |change| {
            let row = params![signed(now_ms), why, principal.map(Principal::as_str)];
            change.execute(VOID, row).map_err(sql)
        })
    }

    /// What was decided about a fingerprint, or is still open. The newest first.
    pub(super) fn find(
        &self,
        fingerprint: &[u8; 32],
        now_ms: u64,
    ) -> Result<Option<Approval>, ApprovalError> {
        self.change(now_ms, |change| find(change, fingerprint, now_ms))
    }

    /// Asks about a call. If a question about it is open or answered, that one is returned.
    pub(super) fn ask(&self, new: &NewApproval, now_ms: u64) -> Result<Approval, ApprovalError> {
        let (is_new, asked) = self.change(now_ms, |change| {
            if let Some(known) = find(change, &new.fingerprint, now_ms)? {
                return Ok((false, known));
            }
            forget(change, now_ms).map_err(sql)?;
            let count = |query: &str, row: &[&dyn rusqlite::ToSql]| {
                change.query_row(query, row, |row| row.get::<_, i64>(0)).map_err(sql)
            };
            let of_caller = "SELECT count(*) FROM approvals WHERE state IN (0, 1) AND principal = ?1";
            let all = "SELECT count(*) FROM approvals WHERE state IN (0, 1)";
            if count(of_caller, &[&new.principal.as_str()])? >= signed(OPEN_OF_PRINCIPAL_MAX) {
                return Err(ApprovalError::TooMany { open: OPEN_OF_PRINCIPAL_MAX, is_of_caller: true });
            }
            if count(all, &[])? >= signed(OPEN_MAX) {
                return Err(ApprovalError::TooMany { open: OPEN_MAX, is_of_caller: false });
            }
            let id = ApprovalId::random().map_err(|_| StoreError::Closed)?;
            insert(change, &id, new, now_ms)?;
            Ok((true, read(change, &id)?))
        })?;
        if is_new {
            note(Event::Requested, &asked);
        }
        Ok(asked)
    }

    /// Takes the right to pass; `None` if another call was faster, or there is none any more.
    pub(super) fn consume(&self, id: &ApprovalId, now_ms: u64) -> Result<Option<Approval>, ApprovalError> {
        let consumed = self.change(now_ms, |change| {
            match change.execute(CONSUME, params![id.as_str(), signed(now_ms)]).map_err(sql)? {
                0 => Ok::<_, ApprovalError>(None),
                _ => read(change, id).map(Some),
            }
        })?;
        if let Some(consumed) = &consumed {
            note(Event::Consumed, consumed);
        }
        Ok(consumed)
    }

    /// Returns the right to pass of a call that had no effect.
    pub(super) fn give_back(&self, id: &ApprovalId, now_ms: u64) -> Result<bool, ApprovalError> {
        self.change(now_ms, |change| {
            Ok(change.execute(GIVE_BACK, params![id.as_str(), signed(now_ms)]).map_err(sql)? > 0)
        })
    }

    /// An approval, and the number of the last change by another connection before it was read.
    pub(super) fn find_with_version(
        &self,
        id: &ApprovalId,
        now_ms: u64,
    ) -> Result<(Approval, i64), ApprovalError> {
        let version = self.version()?;
        Ok((self.change(now_ms, |change| read(change, id))?, version))
    }

    /// A number that differs after another connection has changed the database.
    pub(super) fn version(&self) -> Result<i64, ApprovalError> {
        Ok(self.database.data_version()?)
    }

    /// The key that seals the state of questions.
    pub(super) fn seal_key(&self) -> Result<[u8; 32], ApprovalError> {
        let read = |row: &Row<'_>| row.get::<_, Vec<u8>>(0);
        let key = self.change(unix_ms(), |change| {
            change.query_row("SELECT key FROM seal WHERE id = 1", [], read).map_err(sql)
        })?;
        key.try_into().map_err(|_| unreadable())
    }

    fn change<T>(
        &self,
        now_ms: u64,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, ApprovalError>,
    ) -> Result<T, ApprovalError> {
        self.check_folders()?;
        self.database.change(|change| {
            // Most transactions find nothing to end, and then nothing is written.
            let expire = change.prepare_cached(EXPIRE);
            expire.and_then(|mut expire| expire.execute([signed(now_ms)])).map_err(sql)?;
            // What has ended stays so, also if the work is refused.
            match work(change) {
                Err(ApprovalError::Store(error)) => Err(ApprovalError::Store(error)),
                done => Ok(done),
            }
        })?
    }

    /// Whoever can write the folder can approve everything.
    fn check_folders(&self) -> Result<(), ApprovalError> {
        for folder in [Some(self.folder.as_path()), self.folder.parent()].into_iter().flatten() {
            let found = match std::fs::metadata(folder) {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(StoreError::io("look at the folder of the approvals")(error).into()),
            };
            let shown = folder.display();
            if found.uid() != rustix::process::geteuid().as_raw() {
                let reason =
                    format!("{shown} belongs to user number {}: use the approvals as that user", found.uid());
                return Err(ApprovalError::Exposed(reason));
            }
            if found.mode() & OTHERS_MAY_WRITE != 0 {
                let reason =
                    format!("others can write {shown}, so they could approve calls: `chmod go-w {shown}`");
                return Err(ApprovalError::Exposed(reason));
            }
        }
        Ok(())
    }
}

fn insert(
    change: &Transaction<'_>,
    id: &ApprovalId,
    new: &NewApproval,
    now_ms: u64,
) -> Result<(), ApprovalError> {
    let NewApproval { principal, label, tool, policy, rule, reason, arguments, preview, .. } = new;
    let expires = signed(now_ms.saturating_add(new.timeout_s.saturating_mul(1000)));
    let row = params![
        id.as_str(),
        new.fingerprint.as_slice(),
        principal.as_str(),
        label,
        tool,
        policy,
        rule,
        reason,
        i64::from(new.by == ApproveBy::Caller),
        signed(new.timeout_s),
        arguments,
        preview,
        signed(now_ms),
        expires,
    ];
    change.execute(INSERT, row).map(drop).map_err(sql)
}

/// An approval in force counts before a question, and a question before a denial.
fn find(
    change: &Transaction<'_>,
    fingerprint: &[u8; 32],
    now_ms: u64,
) -> Result<Option<Approval>, ApprovalError> {
    let query = format!(
        "SELECT {COLUMNS} FROM approvals WHERE fingerprint = ?1 AND state IN (0, 1, 2) AND expires > ?2
        ORDER BY state = 1 DESC, state = 0 DESC, created DESC LIMIT 1"
    );
    let mut select = change.prepare_cached(&query).map_err(sql)?;
    let found = select.query_row(params![fingerprint.as_slice(), signed(now_ms)], approval).optional();
    found.map_err(sql)?.map(|found| found.ok_or_else(unreadable)).transpose()
}

fn read(change: &Transaction<'_>, id: &ApprovalId) -> Result<Approval, ApprovalError> {
    let query = format!("SELECT {COLUMNS} FROM approvals WHERE id = ?1");
    let mut select = change.prepare_cached(&query).map_err(sql)?;
    let found = select.query_row(params![id.as_str()], approval).optional().map_err(sql)?;
    found.ok_or_else(|| ApprovalError::Unknown(id.to_string()))?.ok_or_else(unreadable)
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Option<Approval>> {
    let id = ApprovalId::parse(&row.get::<_, String>("id")?);
    let fingerprint = row.get::<_, Vec<u8>>("fingerprint")?.try_into().ok();
    let principal = Principal::new(&row.get::<_, String>("principal")?);
    let state = ApprovalState::of_number(row.get("state")?);
    let (Some(id), Some(fingerprint), Some(principal), Some(state)) = (id, fingerprint, principal, state)
    else {
        return Ok(None);
    };
    let decision = match (row.get::<_, Option<i64>>("decided")?, row.get("decided_by")?) {
        (Some(at), Some(by)) => {
            Some(ApprovalDecision { at_ms: unsigned(at), by, reason: row.get("decision_reason")? })
        }
        _ => None,
    };
    Ok(Some(Approval {
        id,
        fingerprint,
        principal,
        state,
        decision,
        label: row.get("label")?,
        tool: row.get("tool")?,
        policy: row.get("policy")?,
        rule: row.get("rule")?,
        reason: row.get("reason")?,
        by: if row.get::<_, i64>("by_caller")? != 0 { ApproveBy::Caller } else { ApproveBy::Operator },
        preview: row.get("preview")?,
        created_ms: unsigned(row.get("created")?),
        expires_ms: unsigned(row.get("expires")?),
        consumed_ms: row.get::<_, Option<i64>>("consumed")?.map(unsigned),
    }))
}

/// Ends what is over, and removes what ended long ago.
fn forget(change: &Transaction<'_>, now_ms: u64) -> rusqlite::Result<()> {
    change.execute(EXPIRE, params![signed(now_ms)])?;
    let old = signed(now_ms.saturating_sub(KEPT_MS));
    change.execute("DELETE FROM approvals WHERE state IN (2, 3, 4) AND expires <= ?1", params![old])?;
    let many = "DELETE FROM approvals WHERE state IN (2, 3, 4) AND id IN (SELECT id FROM approvals
        WHERE state IN (2, 3, 4) ORDER BY expires DESC LIMIT -1 OFFSET ?1)";
    change.execute(many, params![ENDED_MAX]).map(drop)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn sql(error: rusqlite::Error) -> ApprovalError {
    StoreError::sql("the approvals")(error).into()
}

fn unreadable() -> ApprovalError {
    StoreError::Corrupt("an approval is not readable".to_owned()).into()
}
