//! A server is killed again and again while approved calls are made: no approval is used twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::policies::Policies;
use functional::{Chance, is_quick};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

/// Each round is killed within this time after its start.
const ROUND_MS_MAX: usize = 800;
/// All rounds together.
const TIME_MAX: Duration = Duration::from_secs(240);
const CALLERS: usize = 4;

/// Rounds: `PALISADE_KILLS` asks for another number.
fn rounds() -> usize {
    let asked = std::env::var("PALISADE_KILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if is_quick() { 5 } else { 20 })
}

fn call(name: &str, arguments: Value) -> Request {
    Request::modern("tools/call", json!({"name": name, "arguments": arguments}))
}

fn approvals(user: User, args: &[&str]) -> String {
    Palisade::new(Build::Real, user, &["approvals"]).args(args).end().stdout
}

/// All approvals with that state.
fn listed(user: User, state: &str) -> Vec<String> {
    let all: Vec<Value> = serde_json::from_str(&approvals(user, &["list", "--all", "--json"])).unwrap();
    let found = all.iter().filter(|one| one["state"] == state);
    found.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_approval_is_used_twice_when_servers_are_killed() {
    let user = users()[0];
    let rules =
        json!({"version": "1", "default": "allow", "tools": {"write_file": {"require_approval": true}}});
    let policies = Policies::new(user, "killed", &rules);
    let mut chance = Chance::new(0xa991);
    let opened = {
        let server = policies.server(user);
        server.ask(&call("sandbox_open", json!({}))).result()["structuredContent"]["sandbox_id"].clone()
    };
    let append = |path: &str| {
        call("write_file", json!({"sandbox_id": opened, "path": path, "text": "x", "append": true}))
    };
    let started = Instant::now();
    for round in 0..rounds() {
        let server = policies.server(user);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                // Two callers make each call, so they race for each approval.
                let request = append(&format!("written-{}", caller / 2));
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || repeat(server, &request, is_over));
            }
            // The moment of the kill is the dice.
            let end = Instant::now() + Duration::from_millis(chance.below(ROUND_MS_MAX) as u64);
            while Instant::now() < end {
                for id in listed(user, "pending") {
                    approvals(user, &["approve", &id]);
                }
            }
            rustix::process::kill_process(server.pid(), rustix::process::Signal::KILL).unwrap();
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(started.elapsed() < TIME_MAX, "round {round} is late");
    }
    let server = policies.server(user);
    let size = |path: &str| {
        let read = call("read_file", json!({"sandbox_id": opened, "path": path, "limit": 1}));
        server.ask(&read).result()["structuredContent"]["size_bytes"].as_u64().unwrap_or(0) as usize
    };
    let carried_out = size("written-0") + size("written-1");
    let used = listed(user, "consumed").len();
    assert!(carried_out >= rounds() / 4, "{carried_out} calls are too few to prove anything");
    assert!(carried_out <= used, "{carried_out} calls were carried out with {used} approvals");
}

/// Makes a call again and again until its server is killed.
fn repeat(server: &Server, request: &Request, is_over: &AtomicBool) {
    let Some(mut wire) = server.connect_if_alive() else { return };
    let bytes = request.bytes(server);
    while !is_over.load(Ordering::SeqCst) && wire.try_send(&bytes).is_ok() && wire.try_answer().is_ok() {}
}
