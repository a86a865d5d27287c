//! Backups and restores of small state directories, and hostile backups.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::TestFolder;
use policy::Scopes;
use rusqlite::Connection;

use super::*;
use crate::gatekeeper::{ApprovalStore, Keys, Listed, NewKey};
use crate::store::{Store, StoreConfig};

const NOW_MS: u64 = 1_000_000;

/// A call that was approved and not made yet.
const APPROVED: &str =
    "INSERT INTO approvals (id, fingerprint, principal, label, tool, policy, rule, by_caller, timeout_s,
    arguments, preview, state, created, expires)
    VALUES ('apr_1', x'00', 'token', 'owner', 'run', 'p', '/', 0, 60, '{}', 'run', 1, 0, ?1)";

fn approvals(state_dir: &Path) -> Connection {
    Connection::open(state_dir.join("gate/approvals.db")).unwrap()
}

/// A state directory with a key, a run, a lease, an idempotency record and a chain, beside a place for backups.
struct State {
    folder: TestFolder,
}

impl State {
    async fn new() -> Self {
        let state = Self { folder: TestFolder::new() };
        let own = state.path();
        fs::create_dir_all(own.join("audit/server")).unwrap();
        fs::write(own.join("token"), "plsd_secret").unwrap();
        fs::write(own.join("audit/server/000001.jsonl"), "{\"n\":1}\n{\"n\":2}\n{\"n\":").unwrap();
        fs::write(own.join("audit/key"), "private").unwrap();
        let new = NewKey { name: "ci".to_owned(), scopes: Scopes::all(), policy: None, expires_ms: None };
        Keys::new(&own).create(&new, NOW_MS).unwrap();
        Store::new(StoreConfig::new(&own)).ready().await.unwrap();
        let ledger = Connection::open(own.join("gate/ledger.db")).unwrap();
        let leases = "CREATE TABLE leases (principal TEXT, id INTEGER, server TEXT, cpu_us INTEGER);
            INSERT INTO leases VALUES ('x', 1, 'y', 0); PRAGMA user_version = 2";
        ledger.execute_batch(leases).unwrap();
        fs::write(own.join("gate/idempotency.db"), "records").unwrap();
        ApprovalStore::new(&own).list(Listed::All, NOW_MS).unwrap();
        approvals(&own).execute(APPROVED, [4_000_000_000_000_i64]).unwrap();
        fs::create_dir_all(own.join("runtimes")).unwrap();
        state
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn backed_up(&self) -> PathBuf {
        let target = self.beside("backup");
        back_up(&self.path(), &target, NOW_MS).unwrap();
        target
    }
}

fn names(manifest: &Manifest) -> Vec<&str> {
    manifest.files.iter().map(|file| file.path.as_str()).collect()
}

#[tokio::test]
async fn a_backup_comes_back_without_open_approvals_idempotency_records_and_leases() {
    let state = State::new().await;
    let backup = state.backed_up();
    let to = state.beside("new");
    let restored = restore(&backup, &to, NOW_MS).unwrap();
    assert_eq!(
        names(&restored.manifest),
        [
            "gate/keys.db",
            "gate/approvals.db",
            "gate/ledger.db",
            "store/palisade.db",
            "token",
            "audit/key",
            "audit/server/000001.jsonl"
        ]
    );
    assert_eq!(restored.keys_in_force, 1);
    assert!(!to.join("gate/idempotency.db").exists());
    let state: i64 = approvals(&to).query_row("SELECT state FROM approvals", [], |row| row.get(0)).unwrap();
    assert_eq!(state, 4, "an approval of before is over");
    let leases: i64 = Connection::open(to.join("gate/ledger.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM leases", [], |row| row.get(0))
        .unwrap();
    assert_eq!(leases, 0);
    assert_eq!(Keys::new(&to).list().unwrap()[0].name, "ci");
    assert_eq!(fs::read_to_string(to.join("token")).unwrap(), "plsd_secret");
    let whole = fs::read_to_string(to.join("audit/server/000001.jsonl")).unwrap();
    assert_eq!(whole, "{\"n\":1}\n{\"n\":2}\n", "only whole entries");
    Store::new(StoreConfig::new(&to)).ready().await.unwrap();
}

#[tokio::test]
async fn only_the_owner_can_read_a_backup_and_what_is_restored() {
    let state = State::new().await;
    let backup = state.backed_up();
    let to = state.beside("new");
    restore(&backup, &to, NOW_MS).unwrap();
    for folder in [backup, to] {
        let mut open = vec![folder];
        while let Some(path) = open.pop() {
            let found = fs::symlink_metadata(&path).unwrap();
            let wanted = if found.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(found.mode() & 0o777, wanted, "{}", path.display());
            if found.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_overwritten_and_nothing_half_made_stays() {
    let state = State::new().await;
    let backup = state.backed_up();
    assert!(matches!(back_up(&state.path(), &backup, NOW_MS), Err(BackupError::Exists(_))));
    symlink("nowhere", state.beside("link")).unwrap();
    assert!(matches!(back_up(&state.path(), &state.beside("link"), NOW_MS), Err(BackupError::Exists(_))));
    assert!(matches!(restore(&backup, &state.path(), NOW_MS), Err(BackupError::NotEmpty(_))));
    let empty = state.beside("empty");
    fs::create_dir(&empty).unwrap();
    restore(&backup, &empty, NOW_MS).unwrap();
    assert!(matches!(
        back_up(&state.beside("none"), &state.beside("x"), NOW_MS),
        Err(BackupError::NoState(_))
    ));
    let mut left: Vec<_> =
        fs::read_dir(state.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["backup", "empty", "link", "state"]);
}

#[tokio::test]
async fn a_damaged_or_forged_backup_restores_nothing() {
    let state = State::new().await;
    let (backup, to) = (state.backed_up(), state.beside("new"));
    let manifest = fs::read_to_string(backup.join(manifest::FILE)).unwrap();
    let refused = |what: &str| {
        let error = restore(&backup, &to, NOW_MS).unwrap_err();
        assert!(!to.exists(), "{what}");
        assert!(matches!(error, BackupError::Damaged(..) | BackupError::NoBackup(..)), "{what}: {error}");
    };
    for forged in [
        manifest.replace("\"token\"", "\"../token\""),
        manifest.replace("\"token\"", "\"/etc/passwd\""),
        manifest.replace("\"token\"", "\"control.sock\""),
        manifest.replace("\"token\"", "\"audit/../token\""),
        manifest.replace("\"token\"", "\"audit/key\""),
        manifest.replace("\"format\": 1", "\"format\": 2"),
        manifest.replace("\"format\": 1", "\"format\": 1, \"more\": 1"),
        manifest[..manifest.len() / 2].to_owned(),
    ] {
        fs::write(backup.join(manifest::FILE), &forged).unwrap();
        refused(&forged);
    }
    fs::write(backup.join(manifest::FILE), &manifest).unwrap();
    fs::write(backup.join("token"), "plsd_forged").unwrap();
    refused("a changed file");
    fs::remove_file(backup.join("token")).unwrap();
    refused("a missing file");
    fs::write(state.beside("outside"), "plsd_secret").unwrap();
    symlink(state.beside("outside"), backup.join("token")).unwrap();
    refused("a link with the right content");
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_neither_backed_up_nor_restored() {
    for path in ["gate/keys.db", "gate/approvals.db", "gate/ledger.db", "store/palisade.db"] {
        let state = State::new().await;
        let newer = |folder: &Path| {
            let connection = Connection::open(folder.join(path)).unwrap();
            connection.pragma_update(None, "user_version", 99).unwrap();
        };
        let backup = state.backed_up();
        newer(&state.path());
        let refused = back_up(&state.path(), &state.beside("second"), NOW_MS).unwrap_err();
        assert!(matches!(&refused, BackupError::TooNew { found: 99, .. }), "{path}: {refused}");
        newer(&backup);
        let mut manifest = Manifest::read(&backup).unwrap();
        for file in &mut manifest.files {
            *file = manifest::BackedUp::of(&backup, &file.path).unwrap();
        }
        fs::write(backup.join(manifest::FILE), serde_json::to_vec(&manifest).unwrap()).unwrap();
        let refused = restore(&backup, &state.beside("new"), NOW_MS).unwrap_err();
        assert!(matches!(&refused, BackupError::TooNew { found: 99, .. }), "{path}: {refused}");
    }
}

#[tokio::test]
async fn a_database_that_is_being_written_is_copied_at_one_moment() {
    let state = State::new().await;
    let ledger = state.path().join("gate/ledger.db");
    let writer = Connection::open(&ledger).unwrap();
    writer.busy_timeout(Duration::from_secs(10)).unwrap();
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer.execute_batch("CREATE TABLE pair (a INTEGER, b INTEGER); INSERT INTO pair VALUES (0, 0)").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = &done;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                writer
                    .execute_batch(
                        "BEGIN IMMEDIATE; UPDATE pair SET a = a + 1; UPDATE pair SET b = b + 1; COMMIT",
                    )
                    .unwrap();
            }
        });
        for number in 0..5 {
            let target = state.beside(&format!("b{number}"));
            back_up(&state.path(), &target, NOW_MS).unwrap();
            let copied = Connection::open(target.join("gate/ledger.db")).unwrap();
            let (a, b): (i64, i64) =
                copied.query_row("SELECT a, b FROM pair", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            assert_eq!(a, b);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
