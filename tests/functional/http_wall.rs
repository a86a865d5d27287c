//! A server whose sandboxes cannot be built for a while: what callers, watchers and the log are told, and that it goes on
//! by itself. The process that makes sandboxes is stopped for that, as a kernel that hangs would stop it.

use std::process::Command;
use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Builds that fail before nothing is tried any more.
const FAILURES: usize = 3;
/// A build's own deadline, the probe's after the last of them, and room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// An answer that waits for no build.
const AT_ONCE: Duration = Duration::from_secs(4);

/// The process that the server forked to make sandboxes.
fn spawner(server: &Server) -> Pid {
    let parent = server.pid().as_raw_nonzero().to_string();
    let listed = Command::new("ps").args(["-o", "pid=,comm=", "--ppid", &parent]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.contains("palisade-jail"));
    let number =
        line.unwrap_or_else(|| panic!("no spawner among {listed}")).split_whitespace().next().unwrap();
    Pid::from_raw(number.parse().unwrap()).unwrap()
}

/// One that goes on when the test is over, so that it can see that its server is gone.
struct Stopped(Pid);

impl Stopped {
    fn new(spawner: Pid) -> Self {
        kill_process(spawner, Signal::STOP).unwrap();
        Self(spawner)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).ok();
    }
}

/// Tried without a spare, which could have been made before.
fn cold_run(server: &Server) -> Value {
    let answer = server.ask(&Request::run("bash", "echo well").header("Connection", "close"));
    answer.result()["structuredContent"].clone()
}

fn events(server: &Server, name: &str) -> Vec<Value> {
    let lines = server.log();
    let parsed = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == name).collect()
}

#[test]
fn a_wall_that_cannot_be_built_is_explained_and_comes_back_by_itself() {
    let server = Server::start_as(harness::users()[0], &["--listen", "127.0.0.1:0"]);
    server.wait_until_ready();
    let stopped = Stopped::new(spawner(&server));
    // Spares that were ready are used up on the way.
    let failed = until(PATIENCE, "a run finds no wall", || {
        Some(cold_run(&server)).filter(|result| result["outcome"] == "unavailable")
    });
    assert_eq!(failed["error"]["code"], "wall_unavailable", "{failed}");
    std::thread::scope(|scope| {
        (1..FAILURES).for_each(|_| drop(scope.spawn(|| cold_run(&server))));
    });
    until(PATIENCE, "it is told", || (!events(&server, "wall_unavailable").is_empty()).then_some(()));

    let began = Instant::now();
    let refused = cold_run(&server);
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    let error = &refused["error"];
    assert_eq!((&refused["outcome"], &error["code"]), (&"unavailable".into(), &"wall_unavailable".into()));
    assert!(error["message"].as_str().unwrap().contains("failed at clone"), "{error}");
    assert!(error["cause"].as_str().unwrap().contains("is stopped"), "{error}");
    assert!(error["remedy"].as_str().unwrap().contains("does not finish this step"), "{error}");
    assert_eq!(error["retryable"], true, "{error}");
    assert!(error["retry_after_ms"].as_u64().is_some_and(|pause| pause >= 1000), "{error}");

    assert_eq!(server.ask(&Request::get("/healthz")).status, 200, "the server itself is alive");
    let ready = server.ask(&Request::get("/readyz"));
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("failed at clone"), "{}", ready.text());
    let ready = server.ask(&Request::get("/readyz").without("Authorization"));
    assert_eq!((ready.status, ready.text().contains("clone")), (503, false), "{}", ready.text());

    drop(stopped);
    until(PATIENCE, "it comes back", || (cold_run(&server)["outcome"] == "completed").then_some(()));
    server.wait_until_ready();
    assert_eq!(events(&server, "wall_unavailable").len(), 1, "{}", server.log());
    assert_eq!(events(&server, "wall_available_again").len(), 1, "{}", server.log());
}
