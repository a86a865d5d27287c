//! An engine over the native wall, brokers, and programs that use them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backends::host::HostParts;
use backends::native::NativeBackend;
use engine::links::{Broker, Grant, Link, LinkCall, ListenAt, TOOLS_SOCKET};
use engine::{
    AdmissionLimits, Caller, Engine, EngineConfig, PoolConfig, RunRequest, RunResult, Runs, RunsConfig,
    SandboxId, Store, StoreConfig,
};
use policy::{Ask, Policy};
use sandbox::{Backend, BoxFuture, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

/// The library that warm interpreters load.
const ZYGOTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libzygote.so"));
const PATIENCE: Duration = Duration::from_secs(60);
/// A port for the tests.
pub(crate) const PORT: u16 = 8642;

/// Functions for Python programs: `connect()` to the tools socket, `read_all(connection)`.
pub(crate) const PRELUDE: &str = r#"
import socket, os, sys, threading, time
PATH = "/tmp/.palisade/tools.sock"
def connect(path=PATH):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection
def read_all(connection):
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
def read_exactly(connection, count):
    got = bytearray()
    while len(got) < count:
        part = connection.recv(min(1 << 16, count - len(got)))
        if not part:
            break
        got += part
    return bytes(got)
"#;

pub(crate) fn become_guest(stream: OwnedFd, consent: OwnedFd) -> i32 {
    guest::run(stream, guest::Gate { socket: consent, accept: jail::accept_consent })
}

/// What the tests of one process share.
pub(crate) struct Stage {
    folder: PathBuf,
    backend: Arc<dyn Backend>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) runs: Arc<Runs>,
}

impl Stage {
    pub(crate) fn new(spawner: jail::Spawner) -> Self {
        let folder = std::env::temp_dir().join(format!("palisade-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let host = HostParts { state_dir: folder.clone(), ..HostParts::default() };
        let native = NativeBackend::new(spawner).with_zygotes(ZYGOTE).with_host(host);
        let backend: Arc<dyn Backend> = Arc::new(native);
        let engine = Arc::new(engine(&backend, folder.clone(), PoolConfig::off()));
        let store = Store::new(StoreConfig::new(&folder));
        let runs = Runs::new(Arc::clone(&engine), store, RunsConfig::default());
        Self { folder, backend, engine, runs }
    }

    /// An engine with spares and zygotes, over the same wall.
    pub(crate) fn warm_engine(&self) -> Engine {
        let pool = PoolConfig {
            is_on: true,
            floor: 1,
            ceiling: 1,
            memory_bytes_max: 1 << 30,
            age_max: Duration::from_secs(300),
        };
        engine(&self.backend, self.folder.clone(), pool)
    }

    /// Runs a Python program after [`PRELUDE`]. It must complete.
    pub(crate) async fn python(&self, code: &str, grants: Vec<Grant>) -> String {
        self.completes(program(code, grants)).await
    }

    pub(crate) async fn completes(&self, request: RunRequest) -> String {
        let result = run(&self.engine, request).await;
        told(&result)
    }

    /// Opens a persistent sandbox.
    pub(crate) async fn sandbox(&self) -> SandboxId {
        let request = engine::OpenRequest::default();
        self.runs.sandboxes().open(&Caller::local(), request).await.unwrap().0.id
    }

    /// Runs a program in a persistent sandbox.
    pub(crate) async fn run_in(&self, sandbox: &SandboxId, request: RunRequest) -> RunResult {
        let request = RunRequest { sandbox: Some(sandbox.clone().into()), ..request };
        let started = self.runs.start(&Caller::local(), request).unwrap();
        let finished = tokio::time::timeout(PATIENCE, started.finished()).await.unwrap();
        finished.result.clone()
    }

    pub(crate) async fn close(&self) {
        self.runs.shutdown(engine::Stop::Killed, PATIENCE).await;
        self.engine.close_pool().await;
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn engine(backend: &Arc<dyn Backend>, state_dir: PathBuf, pool: PoolConfig) -> Engine {
    let mut policy = Policy::built_in(2);
    // For a flood of output that lasts as long as a test needs it.
    policy.maxima.output_bytes = 1 << 30;
    let config = EngineConfig {
        state_dir,
        policy,
        admission: AdmissionLimits { runs_max: 8, queue_max: 8, memory_bytes: 8 << 30 },
        pool,
    };
    Engine::new(Arc::clone(backend), config)
}

/// A Python program after [`PRELUDE`].
pub(crate) fn program(code: &str, grants: Vec<Grant>) -> RunRequest {
    let ask = Ask { timeout_ms: Some(20_000), ..Ask::default() };
    let (language, code) = ("python".to_owned(), format!("{PRELUDE}\n{code}"));
    RunRequest { language, code, ask, grants, ..RunRequest::default() }
}

pub(crate) async fn run(engine: &Engine, request: RunRequest) -> RunResult {
    let (_stop, stopped) = oneshot::channel();
    let caller = Caller::local();
    let run = engine.run(&caller, request, None, stopped);
    tokio::time::timeout(PATIENCE, run).await.unwrap()
}

/// The standard output of a run that completed.
pub(crate) fn told(result: &RunResult) -> String {
    let (stdout, stderr) = match &result.phase {
        engine::RunPhase::Finished(execution) => (
            String::from_utf8_lossy(&execution.stdout).trim().to_owned(),
            String::from_utf8_lossy(&execution.stderr).into_owned(),
        ),
        engine::RunPhase::NotStarted => Default::default(),
    };
    assert_eq!(result.outcome, Outcome::Completed, "{:?}\n{stdout}\n{stderr}", result.error);
    stdout
}

/// A broker made of a function.
struct Serve<F>(F);

impl<F, R> Broker for Serve<F>
where
    F: Fn(Link, LinkCall) -> R + Send + Sync,
    R: Future<Output = io::Result<()>> + Send + 'static,
{
    fn serve(self: Arc<Self>, link: Link, call: LinkCall) -> BoxFuture<'static, io::Result<()>> {
        Box::pin((self.0)(link, call))
    }
}

pub(crate) fn at<F, R>(at: ListenAt, serve: F) -> Grant
where
    F: Fn(Link, LinkCall) -> R + Send + Sync + 'static,
    R: Future<Output = io::Result<()>> + Send + 'static,
{
    Grant { at, broker: Arc::new(Serve(serve)) }
}

/// A grant of the tools socket.
pub(crate) fn tools<F, R>(serve: F) -> Vec<Grant>
where
    F: Fn(Link, LinkCall) -> R + Send + Sync + 'static,
    R: Future<Output = io::Result<()>> + Send + 'static,
{
    vec![at(ListenAt::Socket(TOOLS_SOCKET.to_owned()), serve)]
}

/// Sends everything back, until the program ends its direction.
pub(crate) async fn echo(mut link: Link, _: LinkCall) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match link.read(&mut bytes).await? {
            0 => return link.shutdown().await,
            count => link.write_all(&bytes[..count]).await?,
        }
    }
}

/// Reads everything, then sends the number of bytes and closes.
pub(crate) async fn count(mut link: Link, _: LinkCall) -> io::Result<()> {
    let (mut bytes, mut sum) = (vec![0; 1 << 16], 0);
    loop {
        match link.read(&mut bytes).await? {
            0 => return link.write_all(format!("{sum}").as_bytes()).await,
            count => sum += count,
        }
    }
}

/// Keeps the link and does nothing with it.
pub(crate) async fn idle(link: Link, _: LinkCall) -> io::Result<()> {
    std::future::pending::<()>().await;
    drop(link);
    Ok(())
}
