//! The keys of a state directory: who may call a server, until when, and for what.
//!
//! ```text
//! create -> in force -> revoked (for ever)         rotate: another secret, the same id and principal
//!                    -> expired                            the old secret counts until the overlap ends
//! ```
//! `palisade keys` changes them, with or without a server. Every server of the state directory reads them again when
//! they changed ([`Keys::read_if_changed`]) and keeps them in memory. The database has a sync per write: a key that was
//! shown exists, and a revocation that was told lasts. Only the owner may read the folder; one that others can write is
//! refused, because they could put their own keys into it.

use std::fmt;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use policy::{Caller, Claims, Scopes};
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior, params};

use super::key_text::{KeyDigest, KeyId, KeyText};
use crate::store::{StoreError, write_ahead};

const FOLDER: &str = "gate";
const FILE: &str = "keys.db";
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// The most keys in force.
const KEYS_MAX: i64 = 10_000;
/// The server's own token has this name.
const OWNER: &str = "owner";
const NAME_CHARACTERS_MAX: usize = 64;
const OTHERS_MAY_WRITE: u32 = 0o022;
const OTHERS_MAY_LOOK: u32 = 0o077;
/// The layout that this program reads and writes.
pub(crate) const LAYOUT: i64 = 1;
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, old_digest BLOB, old_until INTEGER,
    scopes TEXT NOT NULL, policy TEXT, created INTEGER NOT NULL, expires INTEGER, rotated INTEGER, used INTEGER,
    revoked INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS keys_in_force ON keys (name) WHERE revoked IS NULL;";
const READ: &str = "SELECT id, name, digest, old_digest, old_until, scopes, policy, created, expires, rotated, used, revoked FROM keys";
const CREATE: &str = "INSERT INTO keys (id, name, digest, scopes, policy, created, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// An expired key gives its name free for good, also if the clock goes back.
const FREE_NAME: &str = "UPDATE keys SET revoked = ?2 WHERE name = ?1 AND revoked IS NULL AND expires IS NOT NULL AND expires <= ?2";
const ROTATE: &str = "UPDATE keys SET old_digest = CASE WHEN ?3 IS NULL THEN NULL ELSE digest END, old_until = ?3, digest = ?2, rotated = ?4 WHERE id = ?1";

/// A key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// A name for people and for bindings of policies (`key:NAME`).
    pub name: String,
    /// What its holder may do.
    pub scopes: Scopes,
    /// The policy that binds its holder; the caller has checked that it exists.
    pub policy: Option<String>,
    /// When it ends, in milliseconds since the epoch.
    pub expires_ms: Option<u64>,
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its id, which makes its principal.
    pub id: KeyId,
    /// Its name, unique among the keys in force.
    pub name: String,
    /// What its holder may do.
    pub scopes: Scopes,
    /// The policy that binds its holder.
    pub policy: Option<String>,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ends.
    pub expires_ms: Option<u64>,
    /// When it got its present secret, if that is not its first.
    pub rotated_ms: Option<u64>,
    /// When it was used last, to about a minute.
    pub used_ms: Option<u64>,
    /// When it was revoked.
    pub revoked_ms: Option<u64>,
    /// What is kept of its secret.
    pub digest: KeyDigest,
    /// The secret before the last rotation, and until when it counts.
    pub previous: Option<(KeyDigest, u64)>,
}

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It counts.
    InForce,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

impl KeyState {
    /// The name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl Key {
    /// Its state at that time.
    pub fn state(&self, now_ms: u64) -> KeyState {
        match (self.revoked_ms, self.expires_ms) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(expires)) if expires <= now_ms => KeyState::Expired,
            _ => KeyState::InForce,
        }
    }

    /// Who holds it.
    pub fn caller(&self) -> Caller {
        Caller {
            principal: self.id.principal(),
            scopes: self.scopes,
            label: format!("key:{}", self.name).into(),
            claims: Claims::default(),
            policy: self.policy.as_deref().map(Into::into),
            secret_ms: self.rotated_ms.unwrap_or_default(),
        }
    }
}

/// Why keys were not changed or read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The name cannot be one.
    #[error(
        "`{0}` cannot be the name of a key: use 1 to 64 of A-Z a-z 0-9 . _ -, but not `owner` or the form of an id"
    )]
    BadName(String),
    /// Another key in force has the name.
    #[error("a key `{0}` is in force: choose another name, or revoke it first (`palisade keys revoke {0}`)")]
    NameTaken(String),
    /// The key would be over before it begins.
    #[error("the key would expire in the past: choose a later time")]
    PastExpiry,
    /// No key has the name or id.
    #[error("no key has the name or id `{0}`: see `palisade keys list`")]
    Unknown(String),
    /// The key is over.
    #[error("the key `{name}` is {}: make a new one with `palisade keys create`", state.name())]
    Over {
        /// Its name.
        name: String,
        /// Why.
        state: KeyState,
    },
    /// There are too many.
    #[error("{KEYS_MAX} keys are in force, and no more are possible: revoke some first")]
    TooMany,
    /// Somebody else could change the keys.
    #[error("{0}")]
    Exposed(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was read last: an unequal one means that the keys may have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeysSeen(Option<(u64, u64, i64)>);

/// The keys of a state directory.
pub struct Keys {
    folder: PathBuf,
    open: Mutex<Option<Open>>,
}

struct Open {
    connection: Connection,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys of that state directory. Nothing is read or written yet.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER), open: Mutex::default() }
    }

    /// Makes a key. Its text cannot be had again.
    pub fn create(&self, new: &NewKey, now_ms: u64) -> Result<(Key, KeyText), KeyError> {
        let NewKey { name, scopes, policy, expires_ms } = new;
        if !is_name(name) {
            return Err(KeyError::BadName(name.chars().take(NAME_CHARACTERS_MAX + 1).collect()));
        }
        if expires_ms.is_some_and(|expires| expires <= now_ms) {
            return Err(KeyError::PastExpiry);
        }
        self.change(|change| {
            change.execute(FREE_NAME, params![name, signed(now_ms)]).map_err(sql)?;
            let count = |query: &str| change.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql);
            if count("SELECT count(*) FROM keys WHERE revoked IS NULL")? >= KEYS_MAX {
                return Err(KeyError::TooMany);
            }
            if read(change)?.iter().any(|key| key.name == *name && key.revoked_ms.is_none()) {
                return Err(KeyError::NameTaken(name.clone()));
            }
            let id = KeyId::random()?;
            let (text, digest) = KeyText::random(&id)?;
            let (created, expires) = (signed(now_ms), expires_ms.map(signed));
            let row =
                params![id.as_str(), name, digest.bytes(), scopes.to_string(), policy, created, expires];
            change.execute(CREATE, row).map_err(sql)?;
            Ok((find(change, id.as_str())?, text))
        })
    }

    /// All keys, also those that are over, by name and then by age.
    pub fn list(&self) -> Result<Vec<Key>, KeyError> {
        match self.file()? {
            None => Ok(Vec::new()),
            Some(_) => self.with(|connection| {
                let mut keys = read(connection)?;
                keys.sort_by(|a, b| (&a.name, a.created_ms).cmp(&(&b.name, b.created_ms)));
                Ok(keys)
            }),
        }
    }

    /// Ends a key for good. A key that is revoked already stays so.
    pub fn revoke(&self, name_or_id: &str, now_ms: u64) -> Result<Key, KeyError> {
        self.must_exist(name_or_id)?;
        self.change(|change| {
            let key = find(change, name_or_id)?;
            let revoke = "UPDATE keys SET revoked = ?2, old_digest = NULL, old_until = NULL WHERE id = ?1 AND revoked IS NULL";
            change.execute(revoke, params![key.id.as_str(), signed(now_ms)]).map_err(sql)?;
            find(change, key.id.as_str())
        })
    }

    /// Gives a key another secret. The old one counts for the time of the overlap.
    pub fn rotate(
        &self,
        name_or_id: &str,
        overlap: Duration,
        now_ms: u64,
    ) -> Result<(Key, KeyText), KeyError> {
        self.must_exist(name_or_id)?;
        self.change(|change| {
            let key = find(change, name_or_id)?;
            match key.state(now_ms) {
                KeyState::InForce => {}
                state => return Err(KeyError::Over { name: key.name, state }),
            }
            let (text, digest) = KeyText::random(&key.id)?;
            let overlap_ms = u64::try_from(overlap.as_millis()).unwrap_or(u64::MAX);
            let until = (overlap_ms > 0).then(|| signed(now_ms.saturating_add(overlap_ms)));
            let row = params![key.id.as_str(), digest.bytes(), until, signed(now_ms)];
            change.execute(ROTATE, row).map_err(sql)?;
            Ok((find(change, key.id.as_str())?, text))
        })
    }

    /// Writes when keys were used last.
    pub fn note_used(&self, used: &[(KeyId, u64)]) -> Result<(), KeyError> {
        if used.is_empty() || self.file()?.is_none() {
            return Ok(());
        }
        self.change(|change| {
            let write = "UPDATE keys SET used = max(coalesce(used, 0), ?2) WHERE id = ?1";
            for (id, used_ms) in used {
                change.execute(write, params![id.as_str(), signed(*used_ms)]).map_err(sql)?;
            }
            Ok(())
        })
    }

    /// All keys, if they may have changed since `seen`. Without a file there are none.
    pub fn read_if_changed(&self, seen: &mut Option<KeysSeen>) -> Result<Option<Vec<Key>>, KeyError> {
        let Some(_) = self.file()? else {
            *self.lock() = None;
            let is_new = seen.replace(KeysSeen(None)) != Some(KeysSeen(None));
            return Ok(is_new.then(Vec::new));
        };
        let was_open = self.lock().as_ref().map(|open| open.file);
        self.with(|connection| {
            let version: i64 =
                connection.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(sql)?;
            // A connection counts the changes of others from its own beginning.
            let file = self.file()?.unwrap_or_default();
            let now = KeysSeen(Some((file.0, file.1, version)));
            if was_open == Some(file) && *seen == Some(now) {
                return Ok(None);
            }
            let keys = read(connection)?;
            *seen = Some(now);
            Ok(Some(keys))
        })
    }

    fn must_exist(&self, name_or_id: &str) -> Result<(), KeyError> {
        match self.file()? {
            Some(_) => Ok(()),
            None => Err(KeyError::Unknown(shown(name_or_id))),
        }
    }

    /// Device and inode of the database, if there is one. It and its folders must be this user's alone.
    fn file(&self) -> Result<Option<(u64, u64)>, KeyError> {
        let path = self.folder.join(FILE);
        let file = match std::fs::symlink_metadata(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("look at the keys")(error).into()),
        };
        self.check_folders()?;
        check_owner(&path, &file)?;
        if !file.is_file() || file.mode() & OTHERS_MAY_LOOK != 0 {
            let path = path.display();
            return Err(KeyError::Exposed(format!("others can read {path}: `chmod 600 {path}`")));
        }
        Ok(Some((file.dev(), file.ino())))
    }

    fn check_folders(&self) -> Result<(), KeyError> {
        let folders = [Some(self.folder.as_path()), self.folder.parent()];
        for folder in folders.into_iter().flatten() {
            let found =
                std::fs::metadata(folder).map_err(StoreError::io("look at the folder of the keys"))?;
            check_owner(folder, &found)?;
            if found.mode() & OTHERS_MAY_WRITE != 0 {
                let folder = folder.display();
                let reason =
                    format!("others can write {folder}, so they could make keys: `chmod go-w {folder}`");
                return Err(KeyError::Exposed(reason));
            }
        }
        Ok(())
    }

    fn make_file(&self) -> Result<(u64, u64), KeyError> {
        let make = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder);
        make(&self.folder).map_err(StoreError::io("make the folder of the keys"))?;
        self.check_folders()?;
        let path = self.folder.join(FILE);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::io("make the keys")(error).into()),
        }
        self.file()?.ok_or_else(|| StoreError::Closed.into())
    }

    /// Performs a transaction: all of it, or nothing.
    fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, KeyError>) -> Result<T, KeyError> {
        self.make_file()?;
        self.with(|connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
            check_layout(&change)?;
            let done = work(&change)?;
            change.commit().map_err(sql)?;
            Ok(done)
        })
    }

    /// Works with the connection. One that failed, or whose file was replaced, is opened again.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, KeyError>) -> Result<T, KeyError> {
        let mut held = self.lock();
        let file = self.file()?.ok_or(StoreError::Closed)?;
        let mut open = match held.take().filter(|open| open.file == file) {
            Some(open) => open,
            None => Open { connection: connect(&self.folder.join(FILE)).map_err(sql)?, file },
        };
        let done = work(&mut open.connection);
        if !matches!(done, Err(KeyError::Store(_))) {
            *held = Some(open);
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_bounded = (1..=NAME_CHARACTERS_MAX).contains(&name.len());
    is_bounded && name.chars().all(is_good) && name != OWNER && KeyId::parse(name).is_none()
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_CHARACTERS_MAX).collect()
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), KeyError> {
    match found.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(KeyError::Exposed(format!(
            "{} belongs to user number {}: use the keys as that user",
            path.display(),
            found.uid()
        ))),
    }
}

/// The key of that id, or the one with that name that was not revoked, or else the last one that was.
fn find(connection: &Connection, name_or_id: &str) -> Result<Key, KeyError> {
    let mut keys = read(connection)?;
    keys.retain(|key| key.id.as_str() == name_or_id || key.name == name_or_id);
    keys.sort_by_key(|key| (key.revoked_ms.is_none(), key.created_ms));
    keys.pop().ok_or_else(|| KeyError::Unknown(shown(name_or_id)))
}

fn read(connection: &Connection) -> Result<Vec<Key>, KeyError> {
    check_layout(connection)?;
    let mut query = connection.prepare_cached(READ).map_err(sql)?;
    let rows = query.query_map([], key).map_err(sql)?;
    rows.map(|row| {
        row.map_err(sql)?.ok_or_else(|| StoreError::Corrupt("a key is not readable".to_owned()).into())
    })
    .collect()
}

fn key(row: &Row<'_>) -> rusqlite::Result<Option<Key>> {
    let id = KeyId::parse(&row.get::<_, String>("id")?);
    let digest = KeyDigest::from_bytes(&row.get::<_, Vec<u8>>("digest")?);
    let scopes = row.get::<_, String>("scopes")?.parse().ok();
    let time = |column: &str| row.get::<_, Option<i64>>(column).map(|time| time.map(unsigned));
    let old = row.get::<_, Option<Vec<u8>>>("old_digest")?.and_then(|old| KeyDigest::from_bytes(&old));
    let (Some(id), Some(digest), Some(scopes)) = (id, digest, scopes) else { return Ok(None) };
    Ok(Some(Key {
        id,
        name: row.get("name")?,
        scopes,
        policy: row.get("policy")?,
        created_ms: time("created")?.unwrap_or_default(),
        expires_ms: time("expires")?,
        rotated_ms: time("rotated")?,
        used_ms: time("used")?,
        revoked_ms: time("revoked")?,
        digest,
        previous: old.zip(time("old_until")?),
    }))
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

fn unsigned(time: i64) -> u64 {
    u64::try_from(time).unwrap_or_default()
}

fn sql(error: rusqlite::Error) -> KeyError {
    StoreError::sql("the keys")(error).into()
}

/// A newer program may have changed the file while this one has it open.
fn check_layout(connection: &Connection) -> Result<(), KeyError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    match found > LAYOUT {
        true => Err(StoreError::TooNew { found, known: LAYOUT }.into()),
        false => Ok(()),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_PATIENCE)?;
    write_ahead(&connection, BUSY_PATIENCE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < LAYOUT {
        change.execute_batch(SCHEMA)?;
        change.pragma_update(None, "user_version", LAYOUT)?;
    }
    change.commit()?;
    Ok(connection)
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
