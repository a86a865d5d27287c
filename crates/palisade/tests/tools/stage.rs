//! An engine over the native wall that offers the tools of a fake host.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backends::host::HostParts;
use backends::native::NativeBackend;
use engine::{
    AdmissionLimits, Caller, Engine, EngineConfig, PoolConfig, RunRequest, RunResult, Runs, RunsConfig,
    SandboxId, Store, StoreConfig,
};
use policy::{Ask, Policy};
use sandbox::{Backend, Outcome};
use upstreams::broker::fake::FakeHost;
use upstreams::broker::{ToolBook, ToolBookParts};

/// The library that warm interpreters load.
const ZYGOTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libzygote.so"));
const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

/// What the tests of one process share.
pub(crate) struct Stage {
    folder: PathBuf,
    backend: Arc<dyn Backend>,
}

/// An engine and its host, for one test.
pub(crate) struct Scene {
    pub(crate) engine: Arc<Engine>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) host: Arc<FakeHost>,
}

impl Stage {
    pub(crate) fn new(spawner: jail::Spawner) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-tools-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let executable = Some(PathBuf::from(env!("CARGO_BIN_EXE_palisade")));
        let host = HostParts { state_dir: folder.clone(), executable, ..HostParts::default() };
        let native = NativeBackend::new(spawner).with_zygotes(ZYGOTE).with_host(host);
        Self { folder, backend: Arc::new(native) }
    }

    /// A server with a state directory of its own.
    pub(crate) fn scene(&self) -> Scene {
        static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.scene_in(&format!("state-{number}"))
    }

    pub(crate) fn scene_in(&self, name: &str) -> Scene {
        let state_dir = self.folder.join(name);
        std::fs::create_dir_all(&state_dir).unwrap();
        let config = EngineConfig {
            state_dir: state_dir.clone(),
            policy: Policy::built_in(2),
            admission: AdmissionLimits { runs_max: 8, queue_max: 8, memory_bytes: 8 << 30 },
            pool: PoolConfig::off(),
        };
        let engine = Arc::new(Engine::new(Arc::clone(&self.backend), config));
        let host = Arc::new(FakeHost::default());
        let parts = ToolBookParts {
            web: None,
            host: Arc::clone(&host) as Arc<dyn upstreams::ToolHost>,
            gatekeeper: engine.shared_gatekeeper(),
        };
        engine.offer_access(Arc::new(ToolBook::new(parts, &state_dir)));
        let runs =
            Runs::new(Arc::clone(&engine), Store::new(StoreConfig::new(&state_dir)), RunsConfig::default());
        Scene { engine, runs, host }
    }

    pub(crate) async fn close(&self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A program that asks for all servers.
pub(crate) fn program(language: &str, code: &str) -> RunRequest {
    let ask = Ask { timeout_ms: Some(20_000), ..Ask::default() };
    let access = ["x", "y", "odd-server", "mail", "sink"].map(str::to_owned).to_vec();
    RunRequest { language: language.to_owned(), code: code.to_owned(), ask, access, ..RunRequest::default() }
}

impl Scene {
    pub(crate) async fn run(&self, request: RunRequest) -> RunResult {
        self.run_as(&Caller::local(), request).await
    }

    pub(crate) async fn run_as(&self, caller: &Caller, request: RunRequest) -> RunResult {
        let started = self.runs.start(caller, request).unwrap();
        tokio::time::timeout(PATIENCE, started.finished()).await.unwrap().result.clone()
    }

    /// The standard output of a program that must complete.
    pub(crate) async fn completes(&self, language: &str, code: &str) -> String {
        told(&self.run(program(language, code)).await)
    }

    /// Opens a persistent sandbox.
    pub(crate) async fn sandbox(&self) -> SandboxId {
        let access = program("python", "").access;
        let request = engine::OpenRequest { access, ..engine::OpenRequest::default() };
        self.runs.sandboxes().open(&Caller::local(), request).await.unwrap().0.id
    }

    /// Runs a program in a persistent sandbox.
    pub(crate) async fn run_in(&self, sandbox: &SandboxId, request: RunRequest) -> RunResult {
        self.run(RunRequest { sandbox: Some(sandbox.clone().into()), ..request }).await
    }
}

/// The standard output of a run that completed.
pub(crate) fn told(result: &RunResult) -> String {
    let execution = result.execution();
    let stdout = String::from_utf8_lossy(&execution.stdout).trim().to_owned();
    let stderr = String::from_utf8_lossy(&execution.stderr);
    assert_eq!(result.outcome, Outcome::Completed, "{:?}\n{stdout}\n{stderr}", result.error);
    stdout
}
