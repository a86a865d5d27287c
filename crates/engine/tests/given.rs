//! What a run is given, through the engine's public interface: it reaches the guest after the lease, and nothing
//! of it is left in the state directory, in the log or in what the next run gets.

use std::fmt::Debug;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Folder, PATIENCE, program, say};
use engine::{
    AdmissionLimits, Caller, Durability, Engine, EngineConfig, Given, InputFile, PoolConfig, Proxies, Proxy,
    RunRequest, Runs, RunsConfig, Secret, Store, StoreConfig,
};
use policy::Policy;
use sandbox::Outcome;
use sandbox::fake::FakeBackend;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use wire::{Exit, FrameBuffer, FromGuest, ToGuest, VERSION};

const MAIN: u32 = 1;
const MARKER: &str = "a-secret-that-is-written-nowhere";

/// The messages to each guest, in the order in which the guests started.
type Told = Arc<Mutex<Vec<Vec<ToGuest>>>>;

/// A guest that records what it is told and ends every program with success.
fn recording(told: &Told) -> FakeBackend {
    let told = Arc::clone(told);
    FakeBackend::new(move |stream| guest(stream, &told))
}

fn guest(mut stream: UnixStream, told: &Told) {
    let number = {
        let mut told = told.lock().unwrap();
        told.push(Vec::new());
        told.len() - 1
    };
    say(&mut stream, &FromGuest::Hello { version: VERSION });
    let (mut frames, mut bytes) = (FrameBuffer::default(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        frames.extend(&bytes[..count]);
        while let Some(message) = frames.next::<ToGuest>().unwrap() {
            told.lock().unwrap()[number].push(message.clone());
            match message {
                ToGuest::Open(_) => {
                    say(&mut stream, &FromGuest::Control { process: MAIN, data: b"1\0ready\0".to_vec() });
                }
                ToGuest::Control { .. } => {
                    say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
                }
                _ => {}
            }
        }
    }
}

fn registry(folder: &Folder, told: &Told) -> Arc<Runs> {
    let (floor, ceiling, age_max) = (2, 4, Duration::from_secs(300));
    let config = EngineConfig {
        state_dir: folder.path().to_owned(),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 4 << 30 },
        pool: PoolConfig { is_on: true, floor, ceiling, memory_bytes_max: 1 << 30, age_max },
    };
    let engine = Arc::new(Engine::new(Arc::new(recording(told)), config));
    let store = Store::new(StoreConfig::new(folder.path()));
    let durability = Durability::BeforeReply;
    Runs::new(engine, store, RunsConfig { durability, ..RunsConfig::default() })
}

async fn complete(runs: &Arc<Runs>, request: RunRequest) {
    let started = runs.start(&Caller::local(), request).unwrap();
    let finished = tokio::time::timeout(PATIENCE, started.finished()).await.unwrap();
    assert_eq!(finished.result.outcome, Outcome::Completed, "{:?}", finished.result.error);
}

async fn until_ready(runs: &Runs) {
    let deadline = Instant::now() + PATIENCE;
    while runs.engine().pool_snapshot().levels.iter().all(|level| level.ready < 2) {
        assert!(Instant::now() < deadline, "no spare was built");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn with_secret(name: &str) -> RunRequest {
    let mut given = Given::default();
    given.set_secret(name, Secret::new(MARKER.to_owned()));
    RunRequest { given, ..program("x") }
}

fn has_marker(message: &&(impl Debug + ?Sized)) -> bool {
    let text = format!("{message:?}");
    let numbers = format!("{:?}", MARKER.as_bytes());
    text.contains(MARKER) || text.contains(numbers.trim_matches(['[', ']']))
}

fn files_with_marker(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_marker(&path));
        } else if std::fs::read(&path)
            .is_ok_and(|content| content.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn a_secret_goes_to_the_leased_spare_of_its_run_and_is_left_nowhere() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let (folder, told) = (Folder::new(), Told::default());
    let runs = registry(&folder, &told);
    complete(&runs, program("x")).await;
    until_ready(&runs).await;
    complete(&runs, with_secret("TOKEN")).await;
    assert_eq!(runs.engine().pool_snapshot().hits, 1);
    complete(&runs, program("y")).await;
    until_ready(&runs).await;
    let told = told.lock().unwrap().clone();
    let with: Vec<_> = told.iter().filter(has_marker).collect();
    assert_eq!(with.len(), 1, "one guest has the secret");
    // The start of the interpreter does not have it, only its order.
    assert!(with[0].iter().filter(has_marker).all(|message| matches!(message, ToGuest::Control { .. })));
    assert_eq!(files_with_marker(folder.path()), [""; 0]);
    assert!(log.has("run") && !log.has(MARKER));
}

#[tokio::test]
async fn a_name_that_is_read_at_start_means_a_cold_start_after_the_wall_was_examined() {
    let (folder, told) = (Folder::new(), Told::default());
    let runs = registry(&folder, &told);
    complete(&runs, program("x")).await;
    until_ready(&runs).await;
    complete(&runs, with_secret("LD_TOKEN")).await;
    assert_eq!(runs.engine().pool_snapshot().hits, 0);
    let told = told.lock().unwrap().clone();
    let with: Vec<_> = told.iter().filter(has_marker).collect();
    assert_eq!(with.len(), 1);
    let ToGuest::Open(open) = with[0].iter().find(has_marker).unwrap() else { panic!() };
    assert!(open.env.contains(&("LD_TOKEN".to_owned(), MARKER.to_owned())));
    let opened = with[0].iter().filter(|message| matches!(message, ToGuest::Open(_))).count();
    assert_eq!(opened, 1, "the interpreter is started once");
    assert_eq!(files_with_marker(folder.path()), [""; 0]);
}

#[tokio::test]
async fn proxies_are_variables_in_both_letter_cases() {
    let (folder, told) = (Folder::new(), Told::default());
    let runs = registry(&folder, &told);
    let mut given = Given::default();
    let proxy = Some(Proxy { host: "127.0.0.1".to_owned(), port: 8000 });
    given.set_proxies(Proxies { http: proxy.clone(), https: proxy, no_proxy: vec!["localhost".to_owned()] });
    complete(&runs, RunRequest { given, ..program("x") }).await;
    let told = told.lock().unwrap().concat();
    let order = told.iter().find_map(|message| match message {
        ToGuest::Control { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
        _ => None,
    });
    let order = order.unwrap();
    assert!(order.starts_with("17\0given\0ALL_PROXY\0http://127.0.0.1:8000\0"), "{order:?}");
    assert!(
        order.contains("\0https_proxy\0http://127.0.0.1:8000\0") && order.contains("\0no_proxy\0localhost\0")
    );
}

/// Waits until a guest was told something.
async fn until_told(told: &Told, is_it: fn(&ToGuest) -> bool) -> Vec<ToGuest> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = told.lock().unwrap().concat();
        if all.iter().any(is_it) {
            return all;
        }
        assert!(Instant::now() < deadline, "{all:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_a_run_is_given_goes_ahead_of_its_files() {
    let (folder, told) = (Folder::new(), Told::default());
    let runs = registry(&folder, &told);
    complete(&runs, with_secret("TOKEN")).await;
    let all = until_told(&told, |message| matches!(message, ToGuest::PutFile { .. })).await;
    let given = all.iter().position(|message| has_marker(&message)).unwrap();
    let file = all.iter().position(|message| matches!(message, ToGuest::PutFile { .. })).unwrap();
    assert!(given < file && matches!(all[given], ToGuest::Control { .. }), "{all:?}");
}

#[tokio::test]
async fn nothing_is_given_while_an_archive_is_unpacked() {
    let (folder, told) = (Folder::new(), Told::default());
    let runs = registry(&folder, &told);
    let archive = InputFile { path: "a.tar".to_owned(), content: Vec::new(), unpack: true };
    let request = RunRequest { inputs: vec![archive], ..with_secret("TOKEN") };
    // This guest never ends the command that unpacks.
    let _started = runs.start(&Caller::local(), request).unwrap();
    let is_unpacking = |message: &ToGuest| matches!(message, ToGuest::Open(open) if open.process != MAIN);
    let all = until_told(&told, is_unpacking).await;
    assert!(!all.iter().any(|message| has_marker(&message)), "{all:?}");
}

/// Everything that is logged on this thread, at every level, with the fields of the spans.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().contains(text)
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push_str(&format!("{}={value:?}\n", field.name()));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().push_str(span.metadata().name());
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
