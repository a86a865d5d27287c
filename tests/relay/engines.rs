//! An engine over the relay: languages, a persistent sandbox, and no path of the server on the stream.

use std::sync::Arc;
use std::time::Duration;

use backends::host::HostParts;
use backends::native::NativeBackend;
use engine::workspace::{FilePath, Workspaces};
use engine::{
    AdmissionLimits, Caller, Durability, Engine, EngineConfig, FinishedRun, OpenRequest, PoolConfig,
    RunRequest, Runs, RunsConfig, SandboxId, Store, StoreConfig,
};
use harness::TestFolder;
use jail::Spawner;
use libtest_mimic::Trial;
use policy::Policy;
use relay::{RelayProcess, Tap};
use sandbox::{Backend, Outcome};

use crate::{OwnSpawner, tapped, test};

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn tests(spawner: &OwnSpawner) -> Vec<Trial> {
    let spawner = Arc::clone(spawner);
    vec![
        test("engines::two_walls_serve_one_engine", move || two_walls_serve_one_engine(spawner)),
        test("engines::python_runs_behind_the_relay", python_runs_behind_the_relay),
        test("engines::a_compiled_program_runs_behind_the_relay", a_compiled_program_runs_behind_the_relay),
        test("engines::typescript_runs_behind_the_relay", typescript_runs_behind_the_relay),
        test("engines::limits_hold_behind_the_relay", limits_hold_behind_the_relay),
        test(
            "engines::a_persistent_sandbox_lasts_behind_the_relay",
            a_persistent_sandbox_lasts_behind_the_relay,
        ),
        test("engines::a_relay_that_is_killed_can_be_tried_again", a_relay_that_is_killed_can_be_tried_again),
    ]
}

/// A server whose only wall is a relay.
struct Server {
    runs: Arc<Runs>,
    caller: Caller,
    tap: Arc<Tap>,
    folder: TestFolder,
    process: RelayProcess,
}

impl Server {
    /// A server with two walls, the native one first.
    fn with_two_walls(spawner: Spawner) -> Self {
        let folder = TestFolder::new();
        let parts = HostParts {
            state_dir: folder.path().to_owned(),
            executable: std::env::current_exe().ok(),
            ..HostParts::default()
        };
        let native = NativeBackend::new(spawner).with_host(parts);
        let tap = Arc::new(Tap::new(&folder.path().to_string_lossy()));
        let (relay, process) = tapped(Some(Arc::clone(&tap)));
        let further: Vec<Arc<dyn Backend>> = vec![Arc::new(relay)];
        let runs = runs(Engine::with_walls(Arc::new(native), further, config(&folder)), &folder);
        Self { runs, caller: Caller::local(), tap, folder, process }
    }

    fn start() -> Self {
        let folder = TestFolder::new();
        let tap = Arc::new(Tap::new(&folder.path().to_string_lossy()));
        let (backend, process) = tapped(Some(Arc::clone(&tap)));
        let runs = runs(Engine::new(Arc::new(backend), config(&folder)), &folder);
        Self { runs, caller: Caller::local(), tap, folder, process }
    }

    async fn run(&self, language: &str, code: &str) -> Arc<FinishedRun> {
        self.run_request(request(language, code)).await
    }

    async fn run_request(&self, request: RunRequest) -> Arc<FinishedRun> {
        let started = self.runs.start(&self.caller, request).unwrap();
        tokio::time::timeout(PATIENCE, started.finished()).await.unwrap()
    }

    /// Something passed, and never a path of this server's state.
    fn assert_no_path_passed(&self) {
        assert!(self.tap.bytes() > 1000, "{} bytes passed", self.tap.bytes());
        assert!(!self.tap.was_seen(), "{} was sent", self.folder.path().display());
    }
}

fn runs(engine: Engine, folder: &TestFolder) -> Arc<Runs> {
    let engine = Arc::new(engine);
    let config = RunsConfig { durability: Durability::BeforeReply, ..RunsConfig::default() };
    Runs::new(engine, Store::new(StoreConfig::new(folder.path())), config)
}

fn config(folder: &TestFolder) -> EngineConfig {
    EngineConfig {
        state_dir: folder.path().to_owned(),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 8 << 30 },
        pool: PoolConfig::off(),
    }
}

fn request(language: &str, code: &str) -> RunRequest {
    RunRequest { language: language.to_owned(), code: code.to_owned(), ..RunRequest::default() }
}

/// What a program wrote that succeeded.
fn output(run: &FinishedRun) -> String {
    let result = &run.result;
    let said = String::from_utf8_lossy(&result.execution().stderr).into_owned();
    assert_eq!(result.outcome, Outcome::Completed, "{:?} {said}", result.error);
    String::from_utf8(result.execution().stdout.clone()).unwrap()
}

async fn python_runs_behind_the_relay() {
    let server = Server::start();
    let run = server.run("python", "import sys\nprint('hello', sys.stdin.read())").await;
    assert_eq!(output(&run), "hello \n");
    assert_eq!(run.result.backend, "relay");
    let large = server.run("python", "print('x' * 900_000)").await;
    assert_eq!(output(&large).len(), 900_001, "more than the window of a stream");
    server.assert_no_path_passed();
}

/// The product of the compiler is a layer: it was made behind the wall, kept by the server and sent back.
async fn a_compiled_program_runs_behind_the_relay() {
    let server = Server::start();
    let code = "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 0; }\n";
    let first = server.run("c", code).await;
    assert_eq!(output(&first), "compiled\n");
    let second = server.run("c", code).await;
    assert_eq!(output(&second), "compiled\n");
    let is_cached = |run: &FinishedRun| run.result.execution().compile.map(|compile| compile.cached);
    assert_eq!((is_cached(&first), is_cached(&second)), (Some(false), Some(true)));
    server.assert_no_path_passed();
}

/// A preparer needs the executable, which the relay has for itself.
async fn typescript_runs_behind_the_relay() {
    let server = Server::start();
    let run = server.run("typescript", "const n: number = 41;\nconsole.log(n + 1);").await;
    assert_eq!(output(&run), "42\n");
    server.assert_no_path_passed();
}

async fn limits_hold_behind_the_relay() {
    let server = Server::start();
    let ask = policy::Ask { memory_mb: Some(64), ..policy::Ask::default() };
    let hungry = RunRequest { ask, ..request("python", "x = bytearray(500_000_000)\nprint(len(x))") };
    let run = server.run_request(hungry).await;
    assert_eq!(run.result.outcome, Outcome::OutOfMemory, "{:?}", run.result.error);
    let ask = policy::Ask { timeout_ms: Some(1000), ..policy::Ask::default() };
    let endless = RunRequest { ask, ..request("python", "while True: pass") };
    let run = server.run_request(endless).await;
    assert_eq!(run.result.outcome, Outcome::TimedOut, "{:?}", run.result.error);
}

/// Writes and reads a file from outside.
async fn file(server: &Server, id: &SandboxId, name: &str) -> Vec<u8> {
    let workspace = server.runs.sandboxes().workspace(&server.caller, id.as_str()).await.unwrap().unwrap();
    workspace.read(&FilePath::parse(name).unwrap(), 0, 1000).await.unwrap().bytes
}

async fn a_persistent_sandbox_lasts_behind_the_relay() {
    let server = Server::start();
    let sandboxes = server.runs.sandboxes();
    let (info, _) = sandboxes.open(&server.caller, OpenRequest::default()).await.unwrap();
    let inside = |code: &str| RunRequest { sandbox: Some(info.id.clone().into()), ..request("python", code) };
    let first = server.run_request(inside("x = 20\nopen('made', 'w').write('inside')")).await;
    assert_eq!(output(&first), "");
    let changed: Vec<_> =
        first.result.lasting.as_ref().unwrap().files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(changed, ["made"]);
    assert_eq!(file(&server, &info.id, "made").await, b"inside");
    let workspace = sandboxes.workspace(&server.caller, info.id.as_str()).await.unwrap().unwrap();
    workspace.write(&FilePath::parse("given").unwrap(), b"outside".to_vec()).await.unwrap();
    let second = server.run_request(inside("print(x + 1, open('given').read())")).await;
    assert_eq!(output(&second), "21 outside\n", "the interpreter and the files are still there");
    let program = "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"made\", \"a\"); fputs(\" and C\", f); return 0; }";
    let compiled = RunRequest { sandbox: Some(info.id.clone().into()), ..request("c", program) };
    let compiled = server.run_request(compiled).await;
    assert_eq!(output(&compiled), "");
    assert_eq!(file(&server, &info.id, "made").await, b"inside and C");
    assert!(sandboxes.close(&server.caller, &info.id).await.unwrap());
    assert!(sandboxes.workspace(&server.caller, info.id.as_str()).await.unwrap().is_none());
    server.assert_no_path_passed();
}

/// The loss of a wall is no fault of the program: nothing ran, and the caller is told when to try again.
async fn a_relay_that_is_killed_can_be_tried_again() {
    let mut server = Server::start();
    let run = server.run("python", "print(1)").await;
    assert_eq!(output(&run), "1\n");
    server.process.kill().unwrap();
    let run = server.run("python", "print(2)").await;
    assert_eq!(run.result.outcome, Outcome::Unavailable, "{:?}", run.result.error);
    let error = run.result.error.clone().unwrap();
    assert!(error.retryable && error.retry_after_ms.is_some(), "{error:?}");
}

/// One test, because this process has one spawner.
async fn two_walls_serve_one_engine(spawner: OwnSpawner) {
    let spawner = spawner.lock().unwrap().take().unwrap();
    let server = Server::with_two_walls(spawner);
    a_run_goes_to_the_wall_it_names(&server).await;
    a_sandbox_stays_behind_its_wall(&server).await;
    server.assert_no_path_passed();
}

async fn a_run_goes_to_the_wall_it_names(server: &Server) {
    let code = "#include <stdio.h>\nint main(void) { puts(\"here\"); return 0; }\n";
    for (wall, name) in [(None, "native"), (Some("relay"), "relay"), (Some("native"), "native")] {
        for (language, code) in [("python", "print('here')"), ("c", code)] {
            let run = RunRequest { wall: wall.map(str::to_owned), ..request(language, code) };
            let run = server.run_request(run).await;
            assert_eq!((output(&run).as_str(), &*run.result.backend), ("here\n", name), "{language}");
        }
    }
    let elsewhere = RunRequest { wall: Some("moon".to_owned()), ..request("python", "print(1)") };
    let run = server.run_request(elsewhere).await;
    assert_eq!(run.result.error.as_ref().map(|error| error.code.as_str()), Some("unknown_wall"));
}

async fn a_sandbox_stays_behind_its_wall(server: &Server) {
    let sandboxes = server.runs.sandboxes();
    for name in ["relay", "native"] {
        let open = OpenRequest { wall: Some(name.to_owned()), ..OpenRequest::default() };
        let (info, _) = sandboxes.open(&server.caller, open).await.unwrap();
        let inside =
            |code: &str| RunRequest { sandbox: Some(info.id.clone().into()), ..request("python", code) };
        let first = server.run_request(inside("open('where', 'w').write('here')\nn = 6")).await;
        let second = server.run_request(inside("print(open('where').read(), n * 7)")).await;
        assert_eq!(output(&second), "here 42\n");
        assert_eq!([&*first.result.backend, &*second.result.backend], [name, name]);
        assert_eq!(file(server, &info.id, "where").await, b"here");
        // The files of the other wall are on another machine.
        let own = server.folder.path().join("sandboxes").join(info.id.as_str());
        assert_eq!(own.exists(), name == "native");
        let other = if name == "native" { "relay" } else { "native" };
        let moved = RunRequest { wall: Some(other.to_owned()), ..inside("print(n)") };
        let moved = server.run_request(moved).await;
        assert_eq!(moved.result.error.as_ref().map(|error| error.code.as_str()), Some("wall_mismatch"));
        assert!(sandboxes.close(&server.caller, &info.id).await.unwrap());
    }
}
