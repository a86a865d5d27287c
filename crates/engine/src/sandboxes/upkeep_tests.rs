//! Tests of unused sandboxes, over a guest whose interpreters report their end at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use policy::{Ask, Policy};
use sandbox::fake::{FakeBackend, FakeWorkspaces};
use sandbox::workspace::{WorkspaceRef, WorkspaceStore};
use tokio::sync::oneshot;
use wire::{Exit, FailureKind, FrameBuffer, FromGuest, ToGuest, VERSION};

use super::*;
use crate::result::RunResult;
use crate::store::StoreConfig;
use crate::{AdmissionLimits, EngineConfig, RunRequest};

const SIGKILL: i32 = 9;

pub(super) fn say(stream: &mut UnixStream, message: &FromGuest) {
    stream.write_all(&wire::encode(message).unwrap()).ok();
}

/// The report that the run of this order has ended. The run's id is the third field of the order.
pub(super) fn done(order: &[u8]) -> Vec<u8> {
    let id = order.split(|byte| *byte == 0).nth(2).unwrap();
    [b"10\0done\0".as_slice(), id, b"\0ok\x000\0\0\0\0\0\0\0"].concat()
}

/// How the interpreters of a guest behave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interpreters {
    Honest,
    /// They read nothing more after their first run, like interpreters that a program has stopped.
    Deaf,
    /// They report their end and continue until they are killed.
    Forging,
}

pub(super) fn quick(interpreters: Interpreters) -> FakeBackend {
    FakeBackend::new(move |mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let (mut frames, mut bytes) = (FrameBuffer::default(), [0; 4096]);
        let mut ran = std::collections::BTreeSet::new();
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            frames.extend(&bytes[..count]);
            while let Some(message) = frames.next::<ToGuest>().unwrap() {
                match message {
                    ToGuest::Control { process, data, .. }
                        if ran.insert(process) || interpreters != Interpreters::Deaf =>
                    {
                        say(&mut stream, &FromGuest::Control { process, data: done(&data) });
                    }
                    ToGuest::Drain { request, .. } => say(&mut stream, &FromGuest::Done { request }),
                    ToGuest::AwaitIdle { request, .. } if interpreters != Interpreters::Forging => {
                        say(&mut stream, &FromGuest::Done { request });
                    }
                    ToGuest::Signal { process, signal: SIGKILL } => {
                        say(&mut stream, &FromGuest::Exited { process, exit: Exit::Signal(SIGKILL) });
                    }
                    ToGuest::Hears { request, .. } => {
                        say(
                            &mut stream,
                            &FromGuest::Failed { request, kind: FailureKind::Refused, errno: 0 },
                        );
                    }
                    _ => {}
                }
            }
        }
    })
}

pub(super) struct Scene {
    pub(super) fake: FakeBackend,
    pub(super) workspaces: FakeWorkspaces,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) folder: PathBuf,
}

impl Scene {
    pub(super) fn new(name: &str) -> Self {
        Self::over(name, quick(Interpreters::Honest))
    }

    pub(super) fn over(name: &str, fake: FakeBackend) -> Self {
        let workspaces = FakeWorkspaces::default();
        Self::with(name, fake.with_workspaces(workspaces.clone()), workspaces)
    }

    /// Another server over the store of the scene with this name, if there is one.
    pub(super) fn with(name: &str, fake: FakeBackend, workspaces: FakeWorkspaces) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-upkeep-{name}-{}", std::process::id()));
        let config = EngineConfig {
            state_dir: folder.clone(),
            policy: Policy::built_in(2),
            admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 64 << 30 },
            pool: crate::PoolConfig::off(),
        };
        let engine = Arc::new(Engine::new(Arc::new(fake.clone()), config));
        let store = Store::new(StoreConfig::new(&folder));
        Self { fake, workspaces, sandboxes: Sandboxes::new(engine, store), folder }
    }

    pub(super) async fn open(&self) -> SandboxId {
        self.sandboxes.open(&Caller::local(), OpenRequest::default()).await.unwrap().0.id
    }

    async fn run(&self, id: &SandboxId) -> RunResult {
        self.run_for(id, None).await
    }

    async fn run_for(&self, id: &SandboxId, timeout_ms: Option<u64>) -> RunResult {
        let (language, code) = ("bash".to_owned(), ":".to_owned());
        let ask = Ask { timeout_ms, ..Ask::default() };
        let request =
            RunRequest { language, code, ask, sandbox: Some(id.clone().into()), ..RunRequest::default() };
        let (_keep, stop) = oneshot::channel();
        self.sandboxes
            .run(&Caller::local(), request, Ties { audience: crate::conversation::Audience::default(), stop })
            .await
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

#[tokio::test]
async fn an_idle_sandbox_is_put_to_sleep_and_the_next_run_is_told() {
    let scene = Scene::new("idle");
    let id = scene.open().await;
    let first = scene.run(&id).await;
    assert_eq!((first.outcome, &first.warnings), (sandbox::Outcome::Completed, &Vec::new()), "{first:?}");
    let now = clock::unix_ms();
    scene.sandboxes.look_after(now + IDLE_MS_MAX / 2).await;
    assert_eq!(scene.fake.alive(), 1, "it is not idle for long");
    scene.sandboxes.look_after(now + IDLE_MS_MAX + 1000).await;
    assert_eq!(scene.fake.alive(), 0, "nothing of it lives");
    let listed = scene.sandboxes.list(&Caller::local()).await.unwrap();
    assert_eq!((listed.len(), &listed[0].awake), (1, &Vec::new()));
    let next = scene.run(&id).await;
    assert_eq!(next.outcome, sandbox::Outcome::Completed);
    assert!(next.warnings.iter().any(|warning| warning.contains("was idle for long")), "{:?}", next.warnings);
    assert_eq!(scene.run(&id).await.warnings, Vec::<String>::new(), "it is said once");
}

#[tokio::test]
async fn an_expired_sandbox_is_closed_with_everything_in_it() {
    let scene = Scene::new("expired");
    let id = scene.open().await;
    scene.run(&id).await;
    scene.sandboxes.look_after(clock::unix_ms() + TTL_MS_DEFAULT + 1000).await;
    assert_eq!(scene.fake.alive(), 0);
    assert_eq!(scene.sandboxes.list(&Caller::local()).await.unwrap(), Vec::new());
    assert_eq!(scene.workspaces.ids(), Vec::<String>::new());
    let error = scene.run(&id).await.error.unwrap();
    assert_eq!(error.code, "unknown_sandbox");
}

#[tokio::test]
async fn an_interpreter_that_reads_nothing_any_more_is_replaced_and_the_run_is_told() {
    let scene = Scene::over("deaf", quick(Interpreters::Deaf));
    let id = scene.open().await;
    assert_eq!(scene.run(&id).await.warnings, Vec::<String>::new());
    let next = scene.run(&id).await;
    assert_eq!(next.outcome, sandbox::Outcome::Completed, "{next:?}");
    assert!(next.warnings.iter().any(|warning| warning.contains("had stopped")), "{:?}", next.warnings);
}

#[tokio::test]
async fn a_driver_that_says_done_and_goes_on_is_ended_by_the_clock() {
    let scene = Scene::over("forging", quick(Interpreters::Forging));
    let id = scene.open().await;
    let result = scene.run_for(&id, Some(100)).await;
    assert_eq!((result.outcome, result.execution().exit), (sandbox::Outcome::TimedOut, None), "{result:?}");
    assert!(result.warnings.iter().any(|warning| warning.contains("was killed")), "{:?}", result.warnings);
}

#[tokio::test]
async fn a_wall_without_lasting_files_refuses_to_open_and_says_what_to_do() {
    let fake = quick(Interpreters::Honest).without_workspaces();
    let scene = Scene::with("none", fake, FakeWorkspaces::default());
    let error = scene.sandboxes.open(&Caller::local(), OpenRequest::default()).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), ("no_persistence", false));
    assert!(error.remedy.is_some_and(|remedy| remedy.contains("without sandbox_id")));
    assert_eq!(scene.sandboxes.list(&Caller::local()).await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_sandbox_that_another_server_holds_is_neither_run_nor_closed() {
    let scene = Scene::new("held");
    let id = scene.open().await;
    let of = WorkspaceRef { id: id.as_str().to_owned(), identity: 0 };
    let held = scene.workspaces.hold(&of).await.unwrap();
    let error = scene.run(&id).await.error.unwrap();
    assert!(error.retryable && error.message.contains("another server"), "{error:?}");
    assert!(scene.sandboxes.close(&Caller::local(), &id).await.unwrap_err().retryable);
    drop(held);
    assert_eq!(scene.run(&id).await.outcome, sandbox::Outcome::Completed);
    assert_eq!(scene.sandboxes.close(&Caller::local(), &id).await, Ok(true));
    assert_eq!(scene.workspaces.ids(), Vec::<String>::new());
}

#[tokio::test]
async fn a_sandbox_whose_wall_is_away_is_kept_and_the_caller_is_told_when_to_come_back() {
    let scene = Scene::new("away");
    let id = scene.open().await;
    scene.workspaces.set_away(true);
    let told = scene.run(&id).await.error.unwrap();
    assert_eq!((told.code.as_str(), told.retry_after_ms), ("files_unavailable", Some(50)));
    let told = scene.sandboxes.workspace(&Caller::local(), id.as_str()).await.unwrap_err();
    assert_eq!((told.code.as_str(), told.retryable), ("files_unavailable", true));
    assert!(scene.sandboxes.close(&Caller::local(), &id).await.unwrap_err().retryable);
    scene.workspaces.set_away(false);
    assert_eq!(scene.run(&id).await.outcome, sandbox::Outcome::Completed);
}

#[tokio::test]
async fn the_sweep_removes_workspaces_without_a_record() {
    let scene = Scene::new("sweep");
    let id = scene.open().await;
    for stranger in ["sbx_stranger", "sbx_held"] {
        let of = WorkspaceRef { id: stranger.to_owned(), identity: 0 };
        scene.workspaces.create(&of).await.unwrap();
    }
    let held = WorkspaceRef { id: "sbx_held".to_owned(), identity: 0 };
    let _held = scene.workspaces.hold(&held).await.unwrap();
    assert!(scene.sandboxes.sweep().await);
    assert_eq!(scene.workspaces.ids(), [id.as_str(), "sbx_held"]);
}

#[tokio::test]
async fn a_sandbox_whose_files_are_gone_says_so_and_can_be_closed() {
    let scene = Scene::new("gone");
    let id = scene.open().await;
    let of = WorkspaceRef { id: id.as_str().to_owned(), identity: 0 };
    scene.workspaces.remove(&of).await.unwrap();
    assert_eq!(scene.run(&id).await.error.unwrap().code, "sandbox_broken");
    assert_eq!(scene.sandboxes.close(&Caller::local(), &id).await, Ok(true));
}

#[tokio::test]
async fn files_are_reached_from_outside_while_the_sandbox_sleeps() {
    let scene = Scene::new("files");
    let id = scene.open().await;
    let path = crate::workspace::FilePath::parse("data/in.csv").unwrap();
    let workspace = scene.sandboxes.workspace(&Caller::local(), id.as_str()).await.unwrap().unwrap();
    workspace.write(&path, b"a,b".to_vec()).await.unwrap();
    let result = scene.run(&id).await;
    assert_eq!(result.lasting.unwrap().files, Vec::new(), "the run changed nothing");
    let part = workspace.read(&path, 0, 10).await.unwrap();
    assert_eq!((part.bytes.as_slice(), part.media_type.as_ref()), (b"a,b".as_slice(), "text/csv"));
}

#[tokio::test]
async fn a_run_that_waits_for_admission_can_be_stopped_and_its_sandbox_closed() {
    let scene = Scene::new("waiting");
    let id = scene.open().await;
    let engine = Arc::clone(&scene.sandboxes.engine);
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(engine.admit(1).await.unwrap());
    }
    let begin = |id: &SandboxId| {
        let (language, code) = ("bash".to_owned(), ":".to_owned());
        let request =
            RunRequest { language, code, sandbox: Some(id.clone().into()), ..RunRequest::default() };
        let (sender, stop) = oneshot::channel();
        let (sandboxes, ties) =
            (Arc::clone(&scene.sandboxes), Ties { audience: crate::conversation::Audience::default(), stop });
        let run = tokio::spawn(async move { sandboxes.run(&Caller::local(), request, ties).await });
        (sender, run)
    };
    let waits = |count: usize| {
        let engine = Arc::clone(&engine);
        async move {
            while engine.waiting() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let (stop, run) = begin(&id);
    waits(1).await;
    stop.send(crate::Stop::Cancelled).unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(5), run).await.expect("it waits on").unwrap();
    assert_eq!(stopped.outcome, sandbox::Outcome::Cancelled);
    let (_keep, run) = begin(&id);
    waits(1).await;
    let caller = Caller::local();
    let closed = tokio::time::timeout(Duration::from_secs(5), scene.sandboxes.close(&caller, &id));
    assert!(closed.await.expect("closing waits for the run").unwrap());
    assert_eq!(run.await.unwrap().outcome, sandbox::Outcome::Killed);
    drop(permits);
}
