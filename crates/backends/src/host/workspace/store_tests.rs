//! Tests of the workspaces of a state directory.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use harness::TestFolder;
use sandbox::workspace::{FilePath, NotHeld, WorkspaceRef, WorkspaceStore};
use sandbox::{FailureKind, Failures};

use super::*;

const QUOTA: Quota = Quota { bytes: 1 << 20, inodes: 100 };

struct Scene {
    state: TestFolder,
    store: HostWorkspaces,
    failures: Arc<Failures>,
}

impl Scene {
    fn new() -> Self {
        let (state, failures) = (TestFolder::new(), Arc::<Failures>::default());
        let owner =
            Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        let store = HostWorkspaces::new(state.path(), move |_| owner, Arc::clone(&failures));
        Self { state, store, failures }
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.state.path().join("sandboxes").join(id)
    }

    /// A workspace that was made two minutes ago.
    async fn make_old(&self, id: &str) {
        self.store.create(&of(id)).await.unwrap();
        self.age(id);
    }

    fn age(&self, id: &str) {
        let ago = SystemTime::now() - Duration::from_secs(120);
        File::open(self.folder(id)).unwrap().set_modified(ago).unwrap();
    }

    fn sweep(&self, known: &[&str]) {
        let known: HashSet<String> = known.iter().map(|id| (*id).to_owned()).collect();
        removal::remove_strangers(self.store.folder(), &known, SystemTime::now(), &self.failures);
    }

    fn failed(&self) -> u64 {
        self.failures.counts()[FailureKind::Sweep as usize]
    }
}

fn of(id: &str) -> WorkspaceRef {
    WorkspaceRef { id: id.to_owned(), identity: 1 }
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).unwrap()
}

#[tokio::test]
async fn a_workspace_lasts_until_it_is_removed() {
    let scene = Scene::new();
    assert!(scene.store.is_empty().await);
    assert_eq!(scene.store.open(&of("sbx_1"), QUOTA).await.unwrap_err().code(), "not_found");
    scene.store.create(&of("sbx_1")).await.unwrap();
    let workspace = scene.store.open(&of("sbx_1"), QUOTA).await.unwrap();
    workspace.write(&path("a/file"), b"kept".to_vec()).await.unwrap();
    drop(workspace);
    scene.store.create(&of("sbx_1")).await.unwrap();
    let workspace = scene.store.open(&of("sbx_1"), QUOTA).await.unwrap();
    assert_eq!(workspace.read(&path("a/file"), 0, 9).await.unwrap().bytes, b"kept");
    assert!(!scene.store.is_empty().await);
    scene.store.remove(&of("sbx_1")).await.unwrap();
    assert!(!scene.folder("sbx_1").exists());
    assert_eq!(scene.store.open(&of("sbx_1"), QUOTA).await.unwrap_err().code(), "not_found");
    assert_eq!(scene.failed(), 0);
}

#[tokio::test]
async fn a_workspace_of_an_earlier_version_opens() {
    let scene = Scene::new();
    scene.state.file("sandboxes/sbx_1/workspace/file", "of before");
    scene.state.file("sandboxes/sbx_1/lock", "");
    let _held = scene.store.hold(&of("sbx_1")).await.unwrap();
    let workspace = scene.store.open(&of("sbx_1"), QUOTA).await.unwrap();
    assert_eq!(workspace.read(&path("file"), 0, 99).await.unwrap().bytes, b"of before");
}

#[tokio::test]
async fn no_id_leads_out_of_the_state_directory() {
    let scene = Scene::new();
    for id in ["..", "a/../..", "/tmp", "", "sbx_1.removed"] {
        assert_eq!(scene.store.create(&of(id)).await.unwrap_err().code(), "bad_path", "{id}");
        assert_eq!(scene.store.open(&of(id), QUOTA).await.unwrap_err().code(), "bad_path", "{id}");
        assert_eq!(scene.store.remove(&of(id)).await.unwrap_err().code(), "bad_path", "{id}");
        assert!(matches!(scene.store.hold(&of(id)).await, Err(NotHeld::Broken(_))), "{id}");
    }
}

#[tokio::test]
async fn one_server_holds_a_workspace_and_another_waits_for_it() {
    let scene = Scene::new();
    assert_eq!(scene.store.hold(&of("sbx_1")).await.unwrap_err(), NotHeld::Missing);
    scene.store.create(&of("sbx_1")).await.unwrap();
    let held = scene.store.hold(&of("sbx_1")).await.unwrap();
    assert_eq!(scene.store.hold(&of("sbx_1")).await.unwrap_err(), NotHeld::Elsewhere);
    drop(held);
    let held = scene.store.hold(&of("sbx_1")).await.unwrap();
    scene.store.remove(&of("sbx_1")).await.unwrap();
    drop(held);
    assert_eq!(scene.store.hold(&of("sbx_1")).await.unwrap_err(), NotHeld::Missing);
}

#[tokio::test]
async fn files_that_cannot_be_removed_are_counted_and_told_without_their_path() {
    let scene = Scene::new();
    let error = scene.store.remove(&of("sbx_1")).await.unwrap_err();
    assert_eq!((scene.failed(), error.code()), (1, "not_found"));
    assert!(!format!("{error:?}").contains("sandboxes"), "{error:?}");
}

#[tokio::test]
async fn strangers_are_removed_unless_they_are_known_recent_or_held() {
    let scene = Scene::new();
    for id in ["sbx_stranger", "sbx_known", "sbx_held"] {
        scene.make_old(id).await;
    }
    scene.store.create(&of("sbx_recent")).await.unwrap();
    scene.state.file("sandboxes/sbx_1.removed/workspace/a/file", "left by a server that was killed");
    let held = scene.store.hold(&of("sbx_held")).await.unwrap();
    scene.age("sbx_held");
    scene.sweep(&["sbx_known"]);
    for (id, is_kept) in [
        ("sbx_stranger", false),
        ("sbx_1.removed", false),
        ("sbx_known", true),
        ("sbx_recent", true),
        ("sbx_held", true),
    ] {
        assert_eq!(scene.folder(id).exists(), is_kept, "{id}");
    }
    drop(held);
    scene.sweep(&["sbx_known"]);
    assert!(!scene.folder("sbx_held").exists(), "nobody holds it any more");
    assert_eq!(scene.failed(), 0);
}

#[tokio::test]
async fn folders_that_are_no_workspace_are_left_alone() {
    let scene = Scene::new();
    scene.state.file("sandboxes/backup/letters.txt", "of a person");
    scene.state.file("sandboxes/plain", "a file");
    scene.state.file("elsewhere/lock", "");
    symlink(scene.state.path().join("elsewhere"), scene.folder("link")).unwrap();
    scene.age("backup");
    scene.age("plain");
    scene.sweep(&[]);
    for name in ["backup/letters.txt", "plain", "link", "../elsewhere/lock"] {
        assert!(scene.folder(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn own_files_are_unlinked_in_the_workspace_itself_only() {
    let scene = Scene::new();
    let outside = scene.state.file("outside/file", "of the host");
    scene.store.create(&of("sbx_1")).await.unwrap();
    let inside = scene.folder("sbx_1").join("workspace");
    symlink(&outside, inside.join(".own")).unwrap();
    symlink(outside.parent().unwrap(), inside.join("link")).unwrap();
    fs::create_dir(inside.join("folder")).unwrap();
    let workspace = scene.store.open(&of("sbx_1"), QUOTA).await.unwrap();
    let names = [".own", "link/file", "folder", "gone"].map(str::to_owned);
    workspace.tidy(&names).await;
    assert!(!inside.join(".own").is_symlink() && inside.join("folder").is_dir());
    assert_eq!(fs::read(&outside).unwrap(), b"of the host");
    assert!(workspace.holds_any(&["gone".to_owned(), "folder".to_owned()]).await);
    assert!(workspace.holds_any(&["link".to_owned()]).await, "a link counts as an entry");
    assert!(!workspace.holds_any(&["gone".to_owned(), "link/file".to_owned()]).await);
}

#[tokio::test]
async fn a_directory_without_permissions_is_opened_up_for_its_owner() {
    let scene = Scene::new();
    scene.store.create(&of("sbx_1")).await.unwrap();
    let inside = scene.folder("sbx_1").join("workspace");
    let mode = || fs::metadata(&inside).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o055)).unwrap();
    // A server that is not root restores the permissions as it opens the directory.
    let workspace = scene.store.open(&of("sbx_1"), QUOTA).await.unwrap();
    workspace.open_up().await;
    assert_eq!(mode(), 0o755);
    workspace.open_up().await;
    assert_eq!(mode(), 0o755);
}

/// What a run in a small workspace needs waits for no other thread: there is no runtime here that has one.
#[test]
fn a_small_workspace_is_opened_held_and_examined_at_once() {
    let scene = Scene::new();
    now(scene.store.create(&of("sbx_1"))).unwrap();
    let _held = now(scene.store.hold(&of("sbx_1"))).unwrap();
    let workspace = now(scene.store.open(&of("sbx_1"), QUOTA)).unwrap();
    scene.state.file("sandboxes/sbx_1/workspace/a/file", "content");
    now(workspace.open_up());
    let before = now(workspace.snapshot(Pace::AtOnce)).unwrap();
    now(workspace.tidy(&[".own".to_owned()]));
    assert!(!now(workspace.holds_any(&["numpy.py".to_owned()])));
    let changes = now(before.changes(Pace::AtOnce)).unwrap();
    assert_eq!((changes.files.len(), changes.used.inodes), (0, 2));
}

/// The result of a future that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waited"),
    }
}
