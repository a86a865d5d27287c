//! Runs over the fake backend: a guest that obeys the program's lines, and a separate folder for each test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::{
    AdmissionLimits, Caller, Durability, Engine, EngineConfig, FinishedRun, FoundRun, RunId, RunRequest,
    Runs, RunsConfig, Store, StoreConfig,
};
use policy::Policy;
use sandbox::fake::FakeBackend;
use wire::{Exit, FrameBuffer, FromGuest, Stream, ToGuest, VERSION};

const MAIN: u32 = 1;
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that is removed with the test.
pub(crate) struct Folder(PathBuf, bool);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("palisade-runs-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path, true)
    }

    /// A folder that is not removed.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path, false)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("store/palisade.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.1 {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }
}

pub(crate) fn say(stream: &mut UnixStream, message: &FromGuest) {
    stream.write_all(&wire::encode(message).unwrap()).ok();
}

/// A guest that obeys its program: `out TEXT`, `err TEXT`, `flood KB`, `pause MS`, `wait`, `exit CODE`.
pub(crate) fn obedient() -> FakeBackend {
    FakeBackend::new(|mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let mut frames = FrameBuffer::default();
        let mut bytes = [0; 4096];
        let mut program = String::new();
        loop {
            while let Some(message) = frames.next::<ToGuest>().unwrap() {
                match message {
                    ToGuest::PutFile { data, .. } => program = String::from_utf8(data).unwrap(),
                    ToGuest::Control { .. } => return obey(stream, &program),
                    _ => {}
                }
            }
            match stream.read(&mut bytes) {
                Ok(count @ 1..) => frames.extend(&bytes[..count]),
                _ => return,
            }
        }
    })
}

fn obey(mut stream: UnixStream, program: &str) {
    let write = |stream: &mut UnixStream, to, data: &[u8]| {
        say(stream, &FromGuest::Output { process: MAIN, stream: to, data: data.to_vec() });
    };
    for line in program.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "out" => write(&mut stream, Stream::Stdout, rest.as_bytes()),
            "err" => write(&mut stream, Stream::Stderr, rest.as_bytes()),
            "flood" => {
                (0..rest.parse().unwrap()).for_each(|_| write(&mut stream, Stream::Stdout, &[b'x'; 1024]))
            }
            "pause" => std::thread::sleep(Duration::from_millis(rest.parse().unwrap())),
            "wait" => drop(stream.read_to_end(&mut Vec::new())),
            "exit" => {
                let exit = Exit::Code(rest.parse().unwrap());
                say(&mut stream, &FromGuest::Exited { process: MAIN, exit });
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

pub(crate) fn config(durability: Durability) -> RunsConfig {
    RunsConfig { durability, ..RunsConfig::default() }
}

pub(crate) fn runs_with(fake: &FakeBackend, store: Store, config: RunsConfig) -> Arc<Runs> {
    let engine = engine_config(64 << 30);
    Runs::new(Arc::new(Engine::new(Arc::new(fake.clone()), engine)), store, config)
}

/// An engine whose runs may have this much memory together.
pub(crate) fn engine_config(memory_bytes: u64) -> EngineConfig {
    EngineConfig {
        state_dir: std::env::temp_dir().join(format!("palisade-engine-{}", std::process::id())),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 64, queue_max: 64, memory_bytes },
        pool: engine::PoolConfig::off(),
    }
}

pub(crate) fn runs(folder: &Folder, durability: Durability) -> Arc<Runs> {
    runs_with(&obedient(), Store::new(StoreConfig::new(folder.path())), config(durability))
}

pub(crate) fn program(code: &str) -> RunRequest {
    let ask = policy::Ask { memory_mb: Some(16), ..policy::Ask::default() };
    RunRequest { language: "bash".to_owned(), code: code.to_owned(), ask, ..RunRequest::default() }
}

/// Runs a program to its end.
pub(crate) async fn complete(runs: &Arc<Runs>, caller: &Caller, code: &str) -> Arc<FinishedRun> {
    let started = runs.start(caller, program(code)).unwrap();
    tokio::time::timeout(PATIENCE, started.finished()).await.unwrap()
}

pub(crate) async fn find_finished(runs: &Runs, caller: &Caller, id: &RunId) -> Option<Arc<FinishedRun>> {
    match runs.find(caller, id).await.unwrap() {
        Some(FoundRun::Finished(run)) => Some(run),
        Some(FoundRun::Live(run)) => run.wait(PATIENCE).await,
        Some(FoundRun::Elsewhere(_)) => panic!("another server has it"),
        None => None,
    }
}
