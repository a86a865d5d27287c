//! A server is killed again and again while it carries out runs: no acknowledged run is missing in the audit.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::{Chance, is_quick};
use harness::{Build, Palisade, users};
use serde_json::{Value, json};

/// Each round is killed within this time after its first call.
const ROUND_MS_MAX: usize = 400;
/// All rounds together, for each of them.
const ROUND_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a server may take for its first run.
const FIRST_RUN_MAX: Duration = Duration::from_secs(20);
const CALLERS: usize = 4;

/// Rounds: `PALISADE_KILLS` asks for another number.
fn rounds() -> usize {
    let asked = std::env::var("PALISADE_KILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if is_quick() { 5 } else { 20 })
}

/// `Runs::conclude` writes the entry before the answer. To see the test fail, write it after the answer.
#[test]
fn no_acknowledged_entry_is_missing_when_servers_are_killed() {
    let user = users()[0];
    let palisade = |args: &[&str]| Palisade::new(Build::Real, user, args);
    let serve = || {
        let command = palisade(&["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
        Server::start_command(user, command.into_command())
    };
    let run = Request::modern(
        "tools/call",
        json!({"name": "run", "arguments": {"language": "bash", "code": "echo hi"}}),
    );
    let acknowledged: Mutex<BTreeSet<String>> = Mutex::default();
    let mut chance = Chance::new(0xa0d17);
    let started = Instant::now();
    for round in 0..rounds() {
        let server = serve();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let Some(mut wire) = server.connect_if_alive() else { return };
                    let bytes = run.bytes(&server);
                    while !is_over.load(Ordering::SeqCst) && wire.try_send(&bytes).is_ok() {
                        let Ok(answer) = wire.try_answer() else { break };
                        let result = answer.result();
                        let id = result["structuredContent"]["run_id"].as_str();
                        acknowledged.lock().unwrap().extend(id.map(str::to_owned));
                    }
                });
            }
            // A server needs a moment for its first run; every other one is killed in it.
            let known = acknowledged.lock().unwrap().len();
            let begun = Instant::now();
            // Not `until`: a panic in here would wait for callers of a server that is alive.
            while round % 2 == 0
                && begun.elapsed() < FIRST_RUN_MAX
                && acknowledged.lock().unwrap().len() == known
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Not to wait for anything: the moment itself is the dice.
            std::thread::sleep(Duration::from_millis(chance.below(ROUND_MS_MAX) as u64));
            rustix::process::kill_process(server.pid(), rustix::process::Signal::KILL).unwrap();
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(started.elapsed() < ROUND_TIME_MAX * rounds() as u32, "round {round} is late");
    }
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() >= rounds() / 2, "{} runs are too few to prove anything", acknowledged.len());
    let exported = palisade(&["audit", "export"]).end();
    let entries: Vec<Value> =
        exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_kind = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    let decided: BTreeSet<String> =
        of_kind("decision").iter().map(|entry| format!("{}:{}", entry["instance"], entry["seq"])).collect();
    let runs = of_kind("run");
    for id in &acknowledged {
        let entry = runs.iter().find(|entry| entry["data"]["run_id"] == id.as_str());
        let entry = entry.unwrap_or_else(|| panic!("{id} was acknowledged and is not in the audit"));
        let decision = format!("{}:{}", entry["instance"], entry["data"]["decision"]);
        assert!(decided.contains(&decision), "{id} has no decision: {entry}");
    }
    let key = palisade(&["audit", "key"]).end().stdout;
    let folder = harness::state_dir(user).join("audit");
    let verified = palisade(&["audit", "verify", folder.to_str().unwrap(), "--key", key.trim()]).end();
    assert!(verified.stdout.contains("integrity:    holds"), "{}{}", verified.stdout, verified.stderr);
    assert_eq!(
        verified.status.code(),
        Some(3),
        "killed servers leave chains without an end: {}",
        verified.stdout
    );
}
