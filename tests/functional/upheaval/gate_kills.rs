//! A server is killed again and again while calls are counted: no counter is below what was carried out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use functional::http::{Request, Server};
use functional::{Chance, SOON, is_quick, own_folder, until};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

/// What the policy allows in a day; far more than the rounds use.
const LIMIT: usize = 20_000;
/// Each round is killed within this time after its first call.
const ROUND_MS_MAX: usize = 250;
/// All rounds together.
const TIME_MAX: Duration = Duration::from_secs(150);
const CALLERS: usize = 4;

/// Rounds: `PALISADE_KILLS` asks for another number.
fn rounds() -> usize {
    let asked = std::env::var("PALISADE_KILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if is_quick() { 5 } else { 20 })
}

fn serve(user: User, folder: &str) -> Server {
    let palisade = Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"])
        .env("PALISADE_LOG", "info")
        .env("PALISADE_POLICY_FOLDER", folder)
        .env("PALISADE_POLICY_BIND", "*=counted")
        .env("PALISADE_QUOTA_FOR", "*=parallel_runs:64;runs_per_minute:100000;cpu_s_per_day:100000");
    Server::start_command(user, palisade.into_command())
}

fn call(name: &str, arguments: Value) -> Request {
    Request::modern("tools/call", json!({"name": name, "arguments": arguments}))
}

/// Counts what policy counts for one tool, by what is left of its limit.
fn policy(limit: usize) -> String {
    let limits = json!([{"counter": "all", "window": "day", "max": limit}]);
    json!({"version": "1", "default": "allow", "all_tools": {"limits": limits}}).to_string()
}

#[test]
fn no_counter_is_below_what_was_carried_out_when_servers_are_killed() {
    let user = users()[0];
    let folder = own_folder(user, "counted");
    let file = folder.join("counted.json");
    std::fs::write(&file, policy(LIMIT)).unwrap();
    let folder = folder.to_str().unwrap();
    let mut chance = Chance::new(0x6a7e);
    let opened = {
        let server = serve(user, folder);
        server.ask(&call("sandbox_open", json!({}))).result()["structuredContent"]["sandbox_id"].clone()
    };
    let append = |path: &str| {
        call("write_file", json!({"sandbox_id": opened, "path": path, "text": "x", "append": true}))
    };
    let run = call("run", json!({"language": "bash", "code": "printf x >> ran", "sandbox_id": opened}));
    let started = Instant::now();
    for round in 0..rounds() {
        let server = serve(user, folder);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                let request = if caller == 0 { run.clone() } else { append(&format!("written-{caller}")) };
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let Some(mut wire) = server.connect_if_alive() else { return };
                    let bytes = request.bytes(server);
                    while !is_over.load(Ordering::SeqCst)
                        && wire.try_send(&bytes).is_ok()
                        && wire.try_answer().is_ok()
                    {}
                });
            }
            // Not to wait for anything: the moment itself is the dice.
            std::thread::sleep(Duration::from_millis(chance.below(ROUND_MS_MAX) as u64));
            rustix::process::kill_process(server.pid(), rustix::process::Signal::KILL).unwrap();
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(started.elapsed() < TIME_MAX, "round {round} is late");
    }
    let server = serve(user, folder);
    let size = |path: &str| {
        let read = call("read_file", json!({"sandbox_id": opened, "path": path, "limit": 1}));
        let result = server.ask(&read).result();
        result["structuredContent"]["size_bytes"].as_u64().unwrap_or(0) as usize
    };
    let carried_out: usize = ["ran", "written-1", "written-2", "written-3"].into_iter().map(size).sum();
    assert!(carried_out >= rounds(), "{carried_out} calls are too few to prove anything");
    // The runs of the killed servers hold no places.
    until(SOON, "no place is taken", || {
        let told = server.ask(&call("get_capabilities", json!({}))).result();
        let quotas = told["structuredContent"]["quotas"].clone();
        (quotas["parallel_runs"]["used"] == 0).then_some(())
    });
    drop(server);
    // A limit of exactly what was carried out leaves nothing: the counter is not below it.
    std::fs::write(&file, policy(carried_out)).unwrap();
    let server = serve(user, folder);
    let result = server.ask(&run).result();
    assert_eq!(result["structuredContent"]["error"]["code"], "policy_denied", "{carried_out}: {result:#}");
}
