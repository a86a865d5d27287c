//! An engine over the native wall with a book of hand-made layers, and programs that use them.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backends::host::HostParts;
use backends::native::NativeBackend;
use engine::packages::{Ecosystem, Wanted};
use engine::{
    AdmissionLimits, Caller, Engine, EngineConfig, Installed, OpenRequest, PoolConfig, RunError, RunRequest,
    RunResult, Runs, RunsConfig, SandboxId, Store, StoreConfig,
};
use policy::{Ask, Policy};
use sandbox::{Backend, Outcome};
use tokio::sync::oneshot;

use crate::book::Book;

/// The library that warm interpreters load.
const ZYGOTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libzygote.so"));
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(crate) fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

/// What the tests of one process share.
pub(crate) struct Stage {
    folder: PathBuf,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) book: Arc<Book>,
    pub(crate) spawner: i32,
}

impl Stage {
    pub(crate) fn new(spawner: jail::Spawner) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-layers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let python =
            std::env::var_os("PALISADE_PYTHON").map_or_else(|| "/usr/bin/python3".into(), PathBuf::from);
        let host = HostParts {
            state_dir: folder.clone(),
            interpreters: [("python", python), ("javascript", PathBuf::from("/usr/bin/node"))]
                .map(|(language, path)| (language.to_owned(), path))
                .into_iter()
                .filter(|(_, path)| path.exists())
                .collect(),
            // Parses JavaScript and TypeScript inside.
            executable: std::env::var_os("PALISADE_BIN").map(PathBuf::from),
            ..HostParts::default()
        };
        let spawner_pid = spawner.pid().as_raw_nonzero().get();
        let native = NativeBackend::new(spawner).with_zygotes(ZYGOTE).with_host(host);
        let backend: Arc<dyn Backend> = Arc::new(native);
        let book = Arc::new(Book::new(folder.join("layers")));
        let engine = Arc::new(engine(&backend, folder.clone(), PoolConfig::off()));
        engine.offer_packages(Arc::clone(&book) as Arc<_>);
        let store = Store::new(StoreConfig::new(&folder));
        let runs = Runs::new(Arc::clone(&engine), store, RunsConfig::default());
        Self { folder, backend, engine, runs, book, spawner: spawner_pid }
    }

    /// An engine with spares and zygotes, over the same wall.
    pub(crate) fn warm_engine(&self) -> Engine {
        let pool = PoolConfig {
            is_on: true,
            floor: 1,
            ceiling: 2,
            memory_bytes_max: 1 << 30,
            age_max: Duration::from_secs(300),
        };
        let engine = engine(&self.backend, self.folder.clone(), pool);
        engine.offer_packages(Arc::clone(&self.book) as Arc<_>);
        engine
    }

    /// Runs a program that must complete in a fresh sandbox.
    pub(crate) async fn completes(&self, request: RunRequest) -> String {
        told(&run(&self.engine, request).await)
    }

    /// Opens a persistent sandbox with these packages.
    pub(crate) async fn sandbox(&self, packages: &[&str]) -> SandboxId {
        let request = OpenRequest { packages: wanted(packages), ..OpenRequest::default() };
        self.runs.sandboxes().open(&Caller::local(), request).await.unwrap().0.id
    }

    pub(crate) async fn install(&self, id: &SandboxId, packages: &[&str]) -> Result<Installed, RunError> {
        self.runs.sandboxes().install(&Caller::local(), id, wanted(packages), None).await
    }

    /// Runs a program in a persistent sandbox.
    pub(crate) async fn run_in(&self, sandbox: &SandboxId, request: RunRequest) -> RunResult {
        let request = RunRequest { sandbox: Some(sandbox.clone().into()), ..request };
        let started = self.runs.start(&Caller::local(), request).unwrap();
        let finished = tokio::time::timeout(PATIENCE, started.finished()).await.unwrap();
        finished.result.clone()
    }

    /// Another server over the same state: sandboxes are asleep there.
    pub(crate) async fn restarted(&self) -> Arc<Runs> {
        let store = Store::new(StoreConfig::new(&self.folder));
        let engine = Arc::new(engine(&self.backend, self.folder.clone(), PoolConfig::off()));
        engine.offer_packages(Arc::clone(&self.book) as Arc<_>);
        Runs::new(engine, store, RunsConfig::default())
    }

    pub(crate) async fn close(&self) {
        self.runs.shutdown(engine::Stop::Killed, PATIENCE).await;
        self.engine.close_pool().await;
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn engine(backend: &Arc<dyn Backend>, state_dir: PathBuf, pool: PoolConfig) -> Engine {
    let config = EngineConfig {
        state_dir,
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 8, queue_max: 32, memory_bytes: 8 << 30 },
        pool,
    };
    Engine::new(Arc::clone(backend), config)
}

/// `npm:` chooses the ecosystem; otherwise it is Python's.
pub(crate) fn wanted(texts: &[&str]) -> Vec<Wanted> {
    let one = |text: &&str| match text.strip_prefix("npm:") {
        Some(rest) => Wanted { ecosystem: Ecosystem::Npm, requirement: rest.to_owned() },
        None => Wanted { ecosystem: Ecosystem::Pypi, requirement: (*text).to_owned() },
    };
    texts.iter().map(one).collect()
}

pub(crate) fn program(language: &str, code: &str, packages: &[&str]) -> RunRequest {
    let ask = Ask { timeout_ms: Some(20_000), ..Ask::default() };
    let (language, code) = (language.to_owned(), code.to_owned());
    RunRequest { language, code, ask, packages: wanted(packages), ..RunRequest::default() }
}

pub(crate) async fn run(engine: &Engine, request: RunRequest) -> RunResult {
    let (_stop, stopped) = oneshot::channel();
    let caller = Caller::local();
    let run = engine.run(&caller, request, None, stopped);
    tokio::time::timeout(PATIENCE, run).await.unwrap()
}

/// Both streams of a run, whatever became of it.
pub(crate) fn said(result: &RunResult) -> (String, String) {
    let execution = result.execution();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&execution.stdout), text(&execution.stderr))
}

/// The standard output of a run that completed.
pub(crate) fn told(result: &RunResult) -> String {
    let (stdout, stderr) = said(result);
    assert_eq!(result.outcome, Outcome::Completed, "{:?}\n{stdout}\n{stderr}", result.error);
    stdout
}
