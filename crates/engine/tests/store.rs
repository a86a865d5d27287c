//! The store when its files are damaged, its disk is full or read-only, other servers share it, or time passes.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{self, Folder, PATIENCE, complete, find_finished, program, runs};
use engine::{Caller, Durability, FoundRun, LogRange, Retention, Stop, Store, StoreConfig};
use sandbox::Outcome;

fn store(folder: &Folder) -> Store {
    Store::new(StoreConfig::new(folder.path()))
}

#[tokio::test]
async fn nothing_is_opened_before_it_is_needed_and_then_it_is_private() {
    let folder = Folder::new();
    let store = store(&folder);
    assert!(!folder.path().join("store").exists());
    store.ready().await.unwrap();
    store.flush().await.unwrap();
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path().join("store")), 0o700);
    for file in ["palisade.db", "palisade.db-wal", "palisade.db-shm", "open.lock"] {
        assert_eq!(mode(folder.path().join("store").join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("store")).unwrap();
    let rubbish = vec![b'?'; 8192];
    std::fs::write(folder.database(), &rubbish).unwrap();
    let error = store(&folder).ready().await.unwrap_err();
    assert_eq!(error.code(), "store_corrupt");
    assert!(error.remedy().contains("move it aside"));
    assert_eq!(std::fs::read(folder.database()).unwrap(), rubbish);
}

#[tokio::test]
async fn damage_met_in_use_is_told_and_the_result_is_delivered_all_the_same() {
    let folder = Folder::new();
    let me = Caller::local();
    let first = runs(&folder, Durability::BeforeReply);
    for _ in 0..20 {
        complete(&first, &me, "flood 8\nexit 0").await;
    }
    drop(first);
    // Everything except the first page, which identifies the database and describes its tables.
    let mut bytes = std::fs::read(folder.database()).unwrap();
    while bytes.len() <= 4096 || folder.path().join("store/palisade.db-wal").exists() {
        // The thread of the dropped store copies its write-ahead log back and ends.
        tokio::time::sleep(Duration::from_millis(10)).await;
        bytes = std::fs::read(folder.database()).unwrap();
    }
    bytes[4096..].fill(0xa5);
    std::fs::write(folder.database(), &bytes).unwrap();
    let second = runs(&folder, Durability::BeforeReply);
    let run = complete(&second, &me, "out hi\nexit 0").await;
    assert_eq!(run.result.execution().stdout, b"hi");
    assert!(
        run.result.warnings.iter().any(|warning| warning.contains("store_corrupt")),
        "{:?}",
        run.result.warnings
    );
    assert_eq!(second.store().error().unwrap().code(), "store_corrupt");
    assert_eq!(second.snapshot().store_failures, 1);
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused() {
    let folder = Folder::new();
    store(&folder).ready().await.unwrap();
    let file = rusqlite::Connection::open(folder.database()).unwrap();
    file.pragma_update(None, "user_version", 999).unwrap();
    let error = store(&folder).ready().await.unwrap_err();
    assert_eq!(error.code(), "store_too_new");
    assert!(error.to_string().contains("999"));
}

/// A folder that cannot be created stands for a disk that cannot be written: the tests may run as root, and
/// permissions do not stop root.
#[tokio::test]
async fn without_a_store_results_are_delivered_and_nothing_is_handed_over() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("store"), "not a folder").unwrap();
    let me = Caller::local();
    for durability in [Durability::BeforeReply, Durability::Behind] {
        let runs = runs(&folder, durability);
        let mut started = runs.start(&me, program("out x\nwait")).unwrap();
        let error = started.hand_over().await.unwrap_err();
        assert!(["store_readonly", "store_failed"].contains(&error.code()), "{error:?}");
        let live = started.live();
        drop(started);
        assert_eq!(live.wait(PATIENCE).await.unwrap().result.outcome, Outcome::Cancelled);
        let run = complete(&runs, &me, "out hi\nexit 0").await;
        assert_eq!(
            (run.result.outcome, run.result.execution().stdout.as_slice()),
            (Outcome::Completed, &b"hi"[..])
        );
        assert!(run.result.warnings.iter().any(|warning| warning.contains("cannot be looked up later")));
        // Until then, memory has it.
        assert!(find_finished(&runs, &me, &run.id).await.is_some());
    }
}

/// The limit of the file stands for that of the disk: the database reports the same error for both.
#[tokio::test]
async fn a_full_disk_is_told_and_passes() {
    let folder = Folder::new();
    let me = Caller::local();
    let store = Store::new(StoreConfig { file_bytes_max: 1 << 20, ..StoreConfig::new(folder.path()) });
    let runs = support::runs_with(&support::obedient(), store, support::config(Durability::BeforeReply));
    let is_full = loop {
        let run = complete(&runs, &me, "flood 64\nexit 0").await;
        assert_eq!(
            (run.result.outcome, run.result.execution().stdout.len()),
            (Outcome::Completed, 64 * 1024)
        );
        if let [warning] = run.result.warnings.as_slice() {
            break warning.contains("store_full");
        }
    };
    assert!(is_full);
    assert_eq!(runs.store().error().unwrap().code(), "store_full");
    runs.store().purge(Retention { runs_max: 0, ..Retention::default() }).await.unwrap();
    let run = complete(&runs, &me, "flood 64\nexit 0").await;
    assert_eq!(run.result.warnings, Vec::<String>::new());
    assert_eq!(runs.store().error(), None);
}

#[tokio::test]
async fn two_servers_share_one_directory() {
    let folder = Folder::new();
    let me = Caller::local();
    let (first, second) = (runs(&folder, Durability::BeforeReply), runs(&folder, Durability::BeforeReply));
    let mut started = first.start(&me, program("out x\nwait")).unwrap();
    started.live().subscribe().wait_for(|bytes| *bytes == 1).await.unwrap();
    started.hand_over().await.unwrap();
    let id = started.id().clone();
    assert!(matches!(second.find(&me, &id).await.unwrap(), Some(FoundRun::Elsewhere(_))));
    let one = async {
        for _ in 0..20 {
            complete(&first, &me, "exit 0").await;
        }
    };
    let other = async {
        for _ in 0..20 {
            complete(&second, &me, "exit 0").await;
        }
    };
    tokio::join!(one, other);
    assert_eq!(second.list(&me, 100).await.unwrap().len(), 41);
    started.stop(Stop::Killed);
    started.finished().await;
    let found = find_finished(&second, &me, &id).await.unwrap();
    assert_eq!(
        (found.result.outcome, found.result.execution().stdout.as_slice()),
        (Outcome::Killed, &b"x"[..])
    );
}

#[tokio::test]
async fn a_database_moved_aside_is_replaced_by_a_new_one() {
    let folder = Folder::new();
    let me = Caller::local();
    let runs = runs(&folder, Durability::BeforeReply);
    let old = complete(&runs, &me, "exit 0").await;
    for file in ["palisade.db", "palisade.db-wal", "palisade.db-shm"] {
        let path = folder.path().join("store").join(file);
        std::fs::rename(&path, path.with_extension("aside")).ok();
    }
    let new = complete(&runs, &me, "exit 0").await;
    assert_eq!(new.result.warnings, Vec::<String>::new());
    assert!(runs.find(&me, &old.id).await.unwrap().is_none());
    assert!(runs.find(&me, &new.id).await.unwrap().is_some());
}

#[tokio::test]
async fn old_and_surplus_runs_are_purged_oldest_first_and_the_file_shrinks() {
    let folder = Folder::new();
    let me = Caller::local();
    let runs = runs(&folder, Durability::BeforeReply);
    let mut live = runs.start(&me, program("out x\nwait")).unwrap();
    live.hand_over().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(complete(&runs, &me, "flood 64\nexit 0").await.id.clone());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let purge = async |retention: Retention| while runs.store().purge(retention).await.unwrap().is_more {};
    let keep = Retention::default();
    purge(keep).await;
    assert_eq!(runs.list(&me, 100).await.unwrap().len(), 41, "nothing is purged within the limits");
    let file_bytes = || {
        let file = rusqlite::Connection::open(folder.database()).unwrap();
        file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        std::fs::metadata(folder.database()).unwrap().len()
    };
    let size = file_bytes();

    purge(Retention { runs_max: 31, ..keep }).await;
    let left: Vec<_> = runs.list(&me, 100).await.unwrap().into_iter().map(|run| run.id).collect();
    assert!(ids[10..].iter().all(|id| left.contains(id)) && !ids[..10].iter().any(|id| left.contains(id)));
    purge(Retention { bytes_max: 10 * 64 * 1024 + 16, ..keep }).await;
    assert_eq!(runs.list(&me, 100).await.unwrap().len(), 11);
    assert!(runs.find(&me, &ids[29]).await.unwrap().is_none());
    let range = LogRange { stream: None, offset: 0, limit: 9 };
    assert_eq!(runs.log(&me, &ids[29], range).await.unwrap(), None);
    purge(Retention { age_max: Duration::ZERO, ..keep }).await;
    let rest = runs.list(&me, 100).await.unwrap();
    assert_eq!((rest.len(), &rest[0].id), (1, live.id()), "what runs is never purged");
    let shrunk = file_bytes();
    assert!(shrunk < size / 4, "{size} -> {shrunk}");
}

#[tokio::test]
async fn purging_goes_on_by_itself() {
    let folder = Folder::new();
    let me = Caller::local();
    let retention = Retention { runs_max: 3, ..Retention::default() };
    let first = runs(&folder, Durability::BeforeReply);
    for _ in 0..10 {
        complete(&first, &me, "exit 0").await;
    }
    let store = Store::new(StoreConfig { retention, ..StoreConfig::new(folder.path()) });
    let second = support::runs_with(&support::obedient(), store, support::config(Durability::Behind));
    let purged = async {
        while second.list(&me, 100).await.unwrap().len() > 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, purged).await.unwrap();
}
