//! Several walls in one engine: each has its own spares, its own failures and its own languages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    Caller, Engine, OpenRequest, RunRequest, RunResult, Runs, RunsConfig, Store, StoreConfig, WallDemand,
};
use sandbox::fake::FakeBackend;
use sandbox::{InventoryError, Kernel, Outcome, Toolchain};

use crate::spares::{config, guest, run};
use crate::support::{Folder, PATIENCE, program};

/// Two walls, `near` by default.
struct Scene {
    engine: Engine,
    near: FakeBackend,
    far: FakeBackend,
    _folder: Folder,
}

impl Scene {
    fn new() -> Self {
        let fake = |name| FakeBackend::new(|stream| guest(stream, false)).named(name);
        Self::over(fake("near"), fake("far"))
    }

    fn over(near: FakeBackend, far: FakeBackend) -> Self {
        let folder = Folder::new();
        let further = vec![Arc::new(far.clone()) as Arc<dyn sandbox::Backend>];
        let engine = Engine::with_walls(Arc::new(near.clone()), further, config(&folder));
        Self { engine, near, far, _folder: folder }
    }

    async fn run(&self, wall: Option<&str>) -> RunResult {
        run(&self.engine, RunRequest { wall: wall.map(str::to_owned), ..program("x") }).await
    }

    fn ready(&self, wall: &str) -> usize {
        let pool = self.engine.wall(Some(wall)).unwrap().pool_snapshot();
        assert_eq!(pool.wall, wall);
        pool.levels.iter().map(|level| level.ready).sum()
    }
}

fn code(result: &RunResult) -> &str {
    &result.error.as_ref().unwrap().code
}

#[tokio::test]
async fn a_run_is_behind_the_wall_that_it_names_and_takes_a_spare_of_that_wall() {
    let scene = Scene::new();
    let first = scene.run(Some("far")).await;
    assert_eq!((first.outcome, &*first.backend), (Outcome::Completed, "far"));
    let deadline = Instant::now() + PATIENCE;
    while scene.ready("far") < 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((scene.near.made(), scene.ready("near")), (0, 0), "there was no demand for the other wall");
    scene.run(Some("far")).await;
    assert_eq!(scene.run(None).await.backend, "near");
    assert_eq!(scene.run(Some("near")).await.backend, "near");
    let hits = |wall| scene.engine.wall(Some(wall)).unwrap().pool_snapshot().hits;
    assert_eq!((hits("far"), scene.engine.pool_snapshot().misses > 0), (1, true));
}

#[tokio::test]
async fn a_wall_that_fails_does_not_stop_another() {
    let scene = Scene::new();
    scene.near.set_failing(Some("clone"));
    for _ in 0..4 {
        assert_eq!(code(&scene.run(None).await), "wall_unavailable");
        assert_eq!(scene.run(Some("far")).await.outcome, Outcome::Completed);
    }
    assert!(scene.engine.wall_failure().is_some());
    assert_eq!(scene.engine.wall(Some("far")).unwrap().failure(), None);
}

#[tokio::test]
async fn each_wall_has_its_own_languages() {
    let scene = Scene::new();
    let missing = InventoryError::Missing { commands: "bash is in the image".to_owned() };
    scene.far.languages().set("bash", Err(missing));
    let python = Toolchain { version: "9".to_owned(), ..Toolchain::default() };
    scene.far.languages().set("python", Ok(python));
    assert_eq!(code(&scene.run(Some("far")).await), "language_missing");
    assert_eq!(scene.run(None).await.outcome, Outcome::Completed);
    let far = scene.engine.wall(Some("far")).unwrap();
    assert_eq!(far.runtimes().find("python").await.unwrap().version(), "9");
    assert_eq!(scene.engine.runtimes().find("python").await.unwrap().version(), "0");
}

#[tokio::test]
async fn an_unknown_wall_is_refused_with_the_names_that_there_are() {
    let scene = Scene::new();
    let refused = scene.run(Some("none")).await;
    assert_eq!((refused.outcome, code(&refused)), (Outcome::Refused, "unknown_wall"));
    let error = refused.error.unwrap();
    assert_eq!(error.message, "there is no wall `none` on this server; it has near, far");
    assert!(error.remedy.unwrap().contains("near, far") && !error.retryable);
    let checked = scene.engine.validate(&Caller::local(), &WallDemand::named("none"), "bash", "x").await;
    assert_eq!(checked.unwrap_err().code, "unknown_wall");
    assert_eq!(scene.near.made() + scene.far.made(), 0);
}

#[tokio::test]
async fn a_wall_that_is_not_warmable_has_no_spares_and_is_destroyed_at_once() {
    let fake = |name| FakeBackend::new(|stream| guest(stream, false)).named(name);
    let scene = Scene::over(fake("near"), fake("far").unwarmable());
    for _ in 0..3 {
        let result = scene.run(Some("far")).await;
        assert_eq!(result.outcome, Outcome::Completed);
        assert!(!result.execution().phases.parts_us.iter().any(|(name, _)| *name == "lease"));
    }
    assert_eq!((scene.far.made(), scene.far.quiesced(), scene.far.alive()), (3, 0, 0));
    let pool = scene.engine.wall(Some("far")).unwrap().pool_snapshot();
    assert_eq!((pool.hits, pool.misses), (0, 0));
    scene.run(None).await;
    assert_eq!(scene.near.quiesced(), 1);
}

#[tokio::test]
async fn the_second_of_two_walls_with_one_name_is_not_used() {
    let fake = || FakeBackend::new(|stream| guest(stream, false)).named("near");
    let scene = Scene::over(fake(), fake());
    assert_eq!(scene.engine.walls().count(), 1);
    assert_eq!(scene.run(Some("near")).await.outcome, Outcome::Completed);
    assert_eq!(scene.far.made(), 0);
}

#[tokio::test]
async fn a_persistent_sandbox_stays_behind_its_wall() {
    let (folder, me) = (Folder::new(), Caller::local());
    let runs = |walls: &[&'static str]| {
        let fake = |name: &&'static str| -> Arc<dyn sandbox::Backend> {
            Arc::new(FakeBackend::new(|stream| guest(stream, false)).named(name))
        };
        let further = walls[1..].iter().map(fake).collect();
        let engine = Engine::with_walls(fake(&walls[0]), further, config(&folder));
        Runs::new(Arc::new(engine), Store::new(StoreConfig::new(folder.path())), RunsConfig::default())
    };
    let both = runs(&["near", "far"]);
    let open = |wall: &str| OpenRequest { wall: Some(wall.to_owned()), ..OpenRequest::default() };
    let refused = both.sandboxes().open(&me, open("none")).await.unwrap_err();
    assert_eq!(refused.code, "unknown_wall");
    let (sandbox, _) = both.sandboxes().open(&me, open("far")).await.unwrap();
    let run = async |runs: &Arc<Runs>, wall: Option<&str>| {
        let (sandbox, wall) = (Some(sandbox.id.clone()), wall.map(str::to_owned));
        let started =
            runs.start(&me, RunRequest { sandbox: sandbox.map(Into::into), wall, ..program("x") }).unwrap();
        tokio::time::timeout(PATIENCE, started.finished()).await.unwrap()
    };
    let refused = run(&both, Some("near")).await;
    assert_eq!((code(&refused.result), &*refused.result.backend), ("wall_mismatch", "far"));
    // A server without that wall does not run it behind another one, and still lists and closes it.
    let one = runs(&["near"]);
    let refused = run(&one, None).await;
    assert_eq!((refused.result.outcome, code(&refused.result)), (Outcome::Refused, "unknown_wall"));
    assert_eq!(one.sandboxes().list(&me).await.unwrap().len(), 1);
    assert!(one.sandboxes().close(&me, &sandbox.id).await.unwrap());
}

/// `native`, which is the default, and `gvisor`, which has a kernel of its own. Both are fakes.
fn weak_and_strong(least: Kernel) -> Scene {
    let fake = |name| FakeBackend::new(|stream| guest(stream, false)).named(name);
    let (near, far, folder) = (fake("native"), fake("gvisor"), Folder::new());
    let further = vec![Arc::new(far.clone()) as Arc<dyn sandbox::Backend>];
    let mut config = config(&folder);
    config.policy.least_kernel = least;
    let engine = Engine::with_walls(Arc::new(near.clone()), further, config);
    Scene { engine, near, far, _folder: folder }
}

#[tokio::test]
async fn a_caller_can_raise_the_wall_and_the_result_names_it() {
    let scene = weak_and_strong(Kernel::Shared);
    for (wanted, expected) in [(None, "native"), (Some("own_kernel"), "gvisor"), (Some("gvisor"), "gvisor")] {
        let result = scene.run(wanted).await;
        assert_eq!((result.outcome, &*result.backend), (Outcome::Completed, expected), "{wanted:?}");
    }
    let kernels: Vec<_> = scene.engine.walls().map(|wall| (wall.name(), wall.kernel())).collect();
    assert_eq!(kernels, [("native", Kernel::Shared), ("gvisor", Kernel::Own)]);
}

#[tokio::test]
async fn no_request_gets_a_wall_below_the_least() {
    let scene = weak_and_strong(Kernel::Own);
    assert_eq!(&*scene.run(None).await.backend, "gvisor");
    let refused = scene.run(Some("native")).await;
    assert_eq!((refused.outcome, code(&refused)), (Outcome::Refused, "wall_denied"));
    let checked = scene.engine.validate(&Caller::local(), &WallDemand::named("native"), "bash", "x").await;
    assert_eq!(checked.unwrap_err().code, "wall_denied");
    assert_eq!(scene.near.made(), 0, "nothing was built behind the weaker wall");
}

#[tokio::test]
async fn the_walls_of_a_policy_bind_runs_and_persistent_sandboxes() {
    let (folder, me) = (Folder::new(), Caller::local());
    let fake = |name| FakeBackend::new(|stream| guest(stream, false)).named(name);
    let further = vec![Arc::new(fake("gvisor").without_workspaces()) as Arc<dyn sandbox::Backend>];
    let engine = Engine::with_walls(Arc::new(fake("native")), further, config(&folder));
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = Runs::new(Arc::new(engine), store, RunsConfig::default());
    let strong = || vec![vec!["own_kernel".to_owned()]];
    let run = async |request: RunRequest| {
        let started = runs.start(&me, request).unwrap();
        tokio::time::timeout(PATIENCE, started.finished()).await.unwrap()
    };
    let fresh = run(RunRequest { wall_lists: strong(), ..program("x") }).await;
    assert_eq!((fresh.result.outcome, &*fresh.result.backend), (Outcome::Completed, "gvisor"));
    let open = OpenRequest { wall_lists: strong(), ..OpenRequest::default() };
    let refused = runs.sandboxes().open(&me, open).await.unwrap_err();
    assert_eq!(refused.code, "wall_cannot_last");
    assert!(refused.remedy.unwrap().contains("native"), "the remedy names the walls that keep files");
    // A sandbox that was opened before the policy demanded more.
    let (sandbox, _) = runs.sandboxes().open(&me, OpenRequest::default()).await.unwrap();
    let inside =
        RunRequest { sandbox: Some(sandbox.id.clone().into()), wall_lists: strong(), ..program("x") };
    let refused = run(inside).await;
    assert_eq!((refused.result.outcome, code(&refused.result)), (Outcome::Refused, "wall_denied"));
}
