//! Tests of the layout with a second connection: a server of the version before, and one of a later version.

use super::*;
use crate::sandboxes::{SandboxId, SandboxRecord};
use crate::store::{NewRun, Retention, Store};
use crate::{Principal, RunId};

/// A folder that is removed with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(label: &str) -> Self {
        let path = std::env::temp_dir().join(format!("palisade-layout-{label}-{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(path.join("store")).unwrap();
        Self(path)
    }

    fn store(&self) -> Store {
        Store::new(StoreConfig::new(&self.0))
    }

    fn connect(&self) -> Connection {
        Connection::open(self.0.join("store").join(FILE)).unwrap()
    }

    /// A server of the version before, which has its database open.
    fn earlier(&self) -> Connection {
        let old = self.connect();
        old.pragma_update(None, "journal_mode", "WAL").unwrap();
        MIGRATIONS[..3].iter().for_each(|sql| old.execute_batch(sql).unwrap());
        old.pragma_update(None, "user_version", 3).unwrap();
        old
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

const ID: &str = "sbx_0123456789abcdef0123456789abcdef";
/// Statements of the version before.
const OLD_INSERT: &str = "INSERT INTO sandboxes
    (id, principal, name, identity, limits, ttl_ms, created_ms, used_ms, runs, languages, disk_bytes)
    VALUES (?1, 'local', 'old', ?2, '{}', 1000, 1, 2, 0, 'bash', 5)";
const OLD_SELECT: &str = "SELECT count(*) FROM sandboxes";
const OLD_RUN: &str = "INSERT INTO runs (id, principal, server, language, outcome, created_ms)
    VALUES ('run_1', 'local', 'x', 'bash', 'completed', 1)";

fn run() -> NewRun {
    let (id, principal) = (RunId::random().unwrap(), Principal::local());
    NewRun { id, principal, language: "bash".to_owned(), created_ms: 1 }
}

fn runs_in(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn sandboxes_of_the_version_before_are_behind_the_native_wall() {
    let folder = Folder::new("old");
    let old = folder.earlier();
    old.execute(OLD_INSERT, (ID, 7)).unwrap();
    let store = folder.store();
    let found = store.find_sandbox(&SandboxId::parse(ID).unwrap()).await.unwrap().unwrap();
    assert_eq!((found.wall.as_str(), found.name.as_str(), found.identity), ("native", "old", 7));
    assert_eq!((found.languages.as_slice(), found.disk_bytes), (&["bash".to_owned()][..], 5));
    let new = SandboxRecord {
        id: SandboxId::random().unwrap(),
        identity: 8,
        access: Vec::new(),
        packages: Vec::new(),
        wall: "far".to_owned(),
        ..found.clone()
    };
    store.open_sandbox(new.clone(), None).await.unwrap();
    assert_eq!(store.find_sandbox(&new.id).await.unwrap().unwrap().wall, "far");
    assert_eq!(store.list_sandboxes(None).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_of_the_version_before_can_no_longer_use_sandboxes() {
    let folder = Folder::new("beside");
    let old = folder.earlier();
    old.execute(OLD_INSERT, (ID, 7)).unwrap();
    // Prepared statements are kept, as a server keeps them.
    let mut select = old.prepare(OLD_SELECT).unwrap();
    assert_eq!(select.query_row([], |row| row.get::<_, i64>(0)).unwrap(), 1);
    folder.store().ready().await.unwrap();
    let told = select.query_row([], |row| row.get::<_, i64>(0)).unwrap_err().to_string();
    assert!(told.contains("no such table: sandboxes"), "{told}");
    assert!(old.execute(OLD_INSERT, ("sbx_1", 8)).is_err());
    // Its runs are stored as before.
    old.execute(OLD_RUN, []).unwrap();
}

#[tokio::test]
async fn a_migration_waits_for_the_transaction_of_a_server_of_the_version_before() {
    let folder = Folder::new("waits");
    let old = folder.earlier();
    old.execute_batch("BEGIN IMMEDIATE").unwrap();
    old.execute(OLD_INSERT, (ID, 7)).unwrap();
    let store = folder.store();
    let opened = tokio::spawn(async move { store.list_sandboxes(None).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    old.execute_batch("COMMIT").unwrap();
    let found = opened.await.unwrap().unwrap();
    assert_eq!(found.iter().map(|record| record.wall.as_str()).collect::<Vec<_>>(), ["native"]);
}

#[tokio::test]
async fn a_newer_layout_found_in_use_is_refused_and_nothing_is_written() {
    let folder = Folder::new("newer");
    let store = folder.store();
    let first = run();
    store.begin(first.clone()).await.unwrap();
    let newer = folder.connect();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let refused = StoreError::TooNew { found: 99, known: KNOWN };
    assert_eq!(store.begin(run()).await, Err(refused.clone()));
    assert_eq!(store.find(&first.principal, &first.id).await.unwrap_err(), refused);
    assert_eq!(store.purge(Retention { runs_max: 0, ..Retention::default() }).await, Err(refused.clone()));
    assert_eq!(store.list_sandboxes(None).await.unwrap_err(), refused);
    assert_eq!(runs_in(&newer), 1);
    // The operator learns of it, once.
    assert_eq!(store.error(), Some(refused.clone()));
    assert_eq!(store.failures().counts()[sandbox::FailureKind::Store as usize], 1);
    let told = refused.to_run_error();
    assert_eq!((told.code.as_str(), told.retryable), ("store_too_new", false));
}

#[tokio::test]
async fn a_write_that_waited_for_a_migration_is_refused() {
    let folder = Folder::new("race");
    let store = folder.store();
    store.begin(run()).await.unwrap();
    let newer = folder.connect();
    newer.execute_batch("BEGIN IMMEDIATE; PRAGMA user_version = 99").unwrap();
    // The layout is still the known one when this write begins to wait.
    let waits = tokio::spawn({
        let store = store.clone();
        async move { store.begin(run()).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waits.is_finished());
    newer.execute_batch("COMMIT").unwrap();
    assert_eq!(waits.await.unwrap(), Err(StoreError::TooNew { found: 99, known: KNOWN }));
    assert_eq!(runs_in(&newer), 1);
}

/// A database of that layout, with a run and, where there are any, a sandbox.
fn of_layout(folder: &Folder, layout: usize) {
    let old = folder.connect();
    old.pragma_update(None, "journal_mode", "WAL").unwrap();
    MIGRATIONS[..layout].iter().for_each(|sql| old.execute_batch(sql).unwrap());
    old.pragma_update(None, "user_version", layout as i64).unwrap();
    old.execute(OLD_STORED_RUN, [RUN_ID]).unwrap();
    let sandboxes = if layout >= 4 { "persistent_sandboxes" } else { "sandboxes" };
    if layout >= 2 {
        old.execute(&OLD_INSERT.replace("sandboxes", sandboxes), (ID, 7)).unwrap();
    }
}

const RUN_ID: &str = "run_0123456789abcdef0123456789abcdef";
const OLD_STORED_RUN: &str = "INSERT INTO runs (id, principal, server, language, outcome, created_ms, ended_ms, record)
    VALUES (?1, 'local', 'x', 'bash', 'completed', unixepoch() * 1000, unixepoch() * 1000,
    '{\"usage\":{\"wall_ms\":1.0,\"cpu_ms\":1.0,\"memory_peak_bytes\":1,\"processes_peak\":1,\"queued_ms\":0.0,\"start_ms\":0.0},
    \"backend\":\"native\",\"enforced\":{}}')";

#[tokio::test]
async fn every_earlier_layout_is_migrated_with_its_runs_and_sandboxes() {
    for layout in 1..=MIGRATIONS.len() {
        let folder = Folder::new(&format!("layout{layout}"));
        of_layout(&folder, layout);
        let store = folder.store();
        let runs = store.list(&Principal::local(), 10).await.unwrap();
        assert_eq!(runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), [RUN_ID], "layout {layout}");
        let found = store.find(&Principal::local(), &RunId::parse(RUN_ID).unwrap()).await.unwrap();
        assert!(matches!(found, Some(crate::store::StoredRun::Finished(_))), "layout {layout}: {found:?}");
        let sandboxes = store.list_sandboxes(None).await.unwrap();
        assert_eq!(sandboxes.len(), usize::from(layout >= 2), "layout {layout}");
        store.begin(run()).await.unwrap();
        let now: i64 = folder.connect().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(now, KNOWN, "layout {layout}");
    }
}
