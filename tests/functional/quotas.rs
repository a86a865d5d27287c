//! Limits and quotas of callers, with real servers: exact over two servers of one state directory, told in the refusal
//! and by get_capabilities, and held until a run really ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use functional::http::{Request, Server};
use functional::{SOON, own_folder, until};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

/// A server of this test's state directory with these settings.
fn serve(user: User, settings: &[(&str, &str)]) -> Server {
    let mut palisade = Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"]);
    palisade = palisade.env("PALISADE_LOG", "info");
    for (name, value) in settings {
        palisade = palisade.env(name, value);
    }
    Server::start_command(user, palisade.into_command())
}

fn call(name: &str, arguments: Value) -> Request {
    Request::modern("tools/call", json!({"name": name, "arguments": arguments}))
}

fn structured(server: &Server, request: &Request) -> Value {
    let answer = server.ask(request);
    let result = answer.result();
    assert!(result.is_object(), "{answer:?}");
    result["structuredContent"].clone()
}

/// The refusal by a quota.
fn refused(result: &Value, quota: &str) -> Value {
    assert_eq!(result["outcome"], "refused", "{result:#}");
    let error = &result["error"];
    assert_eq!(error["code"], "quota_exceeded", "{result:#}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(quota) && error["remedy"].is_string(), "{result:#}");
    error.clone()
}

#[test]
fn two_servers_let_exactly_the_limit_of_a_thousand_pass() {
    const LIMIT: usize = 1000;
    const CALLERS: usize = 32;
    let user = users()[0];
    let folder = own_folder(user, "policies");
    let policy = json!({"version": "1", "default": "allow", "all_tools": {"limits": [{"window": "day", "max": LIMIT}]}});
    std::fs::write(folder.join("thousand.json"), policy.to_string()).unwrap();
    let settings =
        [("PALISADE_POLICY_FOLDER", folder.to_str().unwrap()), ("PALISADE_POLICY_BIND", "*=thousand")];
    let servers = [serve(user, &settings), serve(user, &settings)];
    let (passed, denied) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (server, passed, denied) = (&servers[caller % 2], &passed, &denied);
            scope.spawn(move || {
                let mut wire = server.connect();
                let request = call("sandbox_list", json!({})).bytes(server);
                // More than its share, so that the limit is met in the middle of the crowd.
                for _ in 0..LIMIT / CALLERS + 8 {
                    wire.send(&request);
                    let result = wire.answer().result();
                    match result["structuredContent"]["error"]["code"].as_str() {
                        None => passed.fetch_add(1, Ordering::SeqCst),
                        Some("policy_denied") => denied.fetch_add(1, Ordering::SeqCst),
                        Some(_) => panic!("{result:#}"),
                    };
                }
            });
        }
    });
    assert_eq!(passed.load(Ordering::SeqCst), LIMIT);
    assert_eq!(denied.load(Ordering::SeqCst), CALLERS * (LIMIT / CALLERS + 8) - LIMIT);
}

#[test]
fn a_quota_is_told_by_get_capabilities_and_in_the_refusal() {
    let server = serve(users()[0], &[("PALISADE_QUOTA_FOR", "*=runs_per_minute:2;sandboxes:1")]);
    // The three runs must be in one minute.
    until(Duration::from_secs(61), "a minute begins", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        (now % 60 < 30).then_some(())
    });
    for _ in 0..2 {
        server.is_well();
    }
    let told = server.ask(&call("get_capabilities", json!({}))).result();
    let quotas = &told["structuredContent"]["quotas"];
    assert_eq!(quotas["runs_per_minute"], json!({"limit": 2, "used": 2}), "{quotas}");
    assert_eq!(quotas["sandboxes"], json!({"limit": 1, "used": 0}), "{quotas}");
    let text = told["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("your quotas: sandboxes 0 of 1, runs_per_minute 2 of 2"), "{text}");
    let error =
        refused(&structured(&server, &Request::run("bash", "echo no")), "runs_per_minute is used up: 2 of 2");
    assert_eq!(error["retryable"], true);
    let wait_ms = error["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait_ms), "{error}");
    // A check runs a program, too.
    let checked = structured(&server, &call("validate_code", json!({"language": "bash", "code": "true"})));
    refused(&checked, "runs_per_minute");
}

#[test]
fn a_caller_without_a_quota_is_told_of_none() {
    let server = serve(users()[0], &[("PALISADE_QUOTA_RUNS_PER_MINUTE", "0")]);
    server.is_well();
    let told = server.ask(&call("get_capabilities", json!({}))).result();
    assert!(told["structuredContent"]["quotas"].is_null(), "the owner has none");
    assert!(!told["content"][0]["text"].as_str().unwrap().contains("quota"));
}

#[test]
fn open_sandboxes_and_their_disk_are_limited_for_all_servers_together() {
    let settings = [("PALISADE_QUOTA_FOR", "*=sandboxes:2;disk_mb:2")];
    let user = users()[0];
    let servers = [serve(user, &settings), serve(user, &settings)];
    let open = |server: &Server| structured(server, &call("sandbox_open", json!({})));
    let first = open(&servers[0])["sandbox_id"].as_str().unwrap().to_owned();
    let second = open(&servers[1])["sandbox_id"].as_str().unwrap().to_owned();
    for server in &servers {
        let error = refused(&open(server), "sandboxes is used up: 2 of 2");
        assert_eq!(error["retryable"], false);
    }
    let write = |server: &Server, id: &str, path: &str, bytes: usize| {
        let arguments = json!({"sandbox_id": id, "path": path, "text": "x".repeat(bytes)});
        structured(server, &call("write_file", arguments))
    };
    let written = write(&servers[0], &first, "a", 3 << 19);
    assert_eq!(written["size_bytes"], 3 << 19, "{written:#}");
    refused(&write(&servers[1], &second, "b", 1 << 20), "disk_mb");
    // A link to upload to is held to the same quota.
    let link = structured(&servers[1], &call("write_file", json!({"sandbox_id": second, "path": "c"})));
    let path = link["upload_url"].as_str().unwrap().split_once("://").unwrap().1.split_once('/').unwrap().1;
    let upload = Request::new("PUT", &format!("/{path}"), vec![b'x'; 1 << 20]);
    let answer = servers[1].ask(&upload);
    assert_eq!(answer.status, 507, "{answer:?}");
    assert!(answer.text().contains("quota_exceeded"), "{answer:?}");
    assert!(write(&servers[1], &second, "d", 1000)["size_bytes"].is_number());
    let filled = write(&servers[0], &first, "e", 400 << 10);
    assert!(filled["size_bytes"].is_number(), "{filled:#}");
    let closed = structured(&servers[0], &call("sandbox_close", json!({"sandbox_id": first})));
    assert_eq!(closed["closed"], true);
    assert!(write(&servers[1], &second, "b", 1 << 20)["size_bytes"].is_number(), "there is room again");
    assert!(open(&servers[0])["sandbox_id"].is_string());
}

#[test]
fn a_run_whose_caller_disconnects_keeps_its_place_until_it_has_ended_and_a_dead_server_holds_none() {
    let settings = [("PALISADE_QUOTA_FOR", "*=parallel_runs:1")];
    let user = users()[0];
    let (first, second) = (serve(user, &settings), serve(user, &settings));
    let long = json!({"language": "bash", "code": "sleep 1000", "limits": {"wait_ms": 0}});
    let running = structured(&first, &call("run", long.clone()));
    assert_eq!(running["outcome"], "running", "{running:#}");
    let run_id = running["run_id"].as_str().unwrap();
    // Its caller has an answer and is gone; the run goes on.
    let error =
        refused(&structured(&second, &Request::run("bash", "echo no")), "parallel_runs is used up: 1 of 1");
    assert_eq!((&error["retryable"], &error["retry_after_ms"]), (&json!(true), &json!(1000)));
    let cancelled = structured(&first, &call("wait", json!({"run_id": run_id, "cancel": true})));
    assert_eq!(cancelled["outcome"], "cancelled", "{cancelled:#}");
    // Other servers see the end when it is written, some milliseconds after the answer.
    let runs_again = || {
        let result = structured(&second, &Request::run("bash", "echo yes"));
        (result["outcome"] == "completed").then_some(())
    };
    until(SOON, "the place is free for the other server", runs_again);
    // Asked without a run: a run of the second server could take the place first.
    let is_used = |places: u64| {
        let capabilities = structured(&second, &call("get_capabilities", json!({})));
        (capabilities["quotas"]["parallel_runs"]["used"] == places).then_some(())
    };
    // The end of the run before is written after its answer, too.
    until(SOON, "nothing runs", || is_used(0));
    // A caller that disconnects ends its run; the place is free when the run has ended, and not before.
    let mut wire = first.connect();
    wire.send(&call("run", json!({"language": "bash", "code": "sleep 1000"})).bytes(&first));
    until(SOON, "the run has its place", || is_used(1));
    refused(&structured(&second, &Request::run("bash", "echo no")), "parallel_runs");
    drop(wire);
    until(SOON, "the place is free", runs_again);
    // The run of a server that is killed takes no place.
    until(SOON, "the place is free for the first server", || {
        (structured(&first, &call("run", long.clone()))["outcome"] == "running").then_some(())
    });
    refused(&structured(&second, &Request::run("bash", "echo no")), "parallel_runs");
    drop(first);
    second.is_well();
}

#[test]
fn processor_time_of_a_day_is_charged_when_a_run_ends() {
    let server = serve(users()[0], &[("PALISADE_QUOTA_FOR", "*=cpu_s_per_day:1")]);
    server.is_well();
    let code = "import time\nwhile time.process_time() < 1.2: pass";
    let worked = structured(&server, &Request::run("python", code));
    assert_eq!(worked["outcome"], "completed", "{worked:#}");
    let error =
        refused(&structured(&server, &Request::run("bash", "true")), "cpu_s_per_day is used up: 1 of 1");
    assert!(error["retry_after_ms"].as_u64().unwrap() <= 86_400_000);
}

#[test]
fn processor_time_between_runs_is_charged_to_the_owner_of_the_sandbox() {
    let server = serve(users()[0], &[("PALISADE_QUOTA_FOR", "*=cpu_s_per_day:1000")]);
    let sandbox = structured(&server, &call("sandbox_open", json!({})))["sandbox_id"].clone();
    let code = "(while :; do :; done) >/dev/null 2>&1 &";
    let left =
        structured(&server, &call("run", json!({"language": "bash", "code": code, "sandbox_id": sandbox})));
    assert_eq!(left["outcome"], "completed", "{left:#}");
    until(SOON, "the time of the process that was left is charged", || {
        let capabilities = structured(&server, &call("get_capabilities", json!({})));
        (capabilities["quotas"]["cpu_s_per_day"]["used"].as_u64() >= Some(2)).then_some(())
    });
}

#[test]
fn a_server_beside_a_newer_one_lets_no_counted_call_pass() {
    let user = users()[0];
    let folder = own_folder(user, "policies");
    let policy = json!({"version": "1", "default": "allow", "tools": {"sandbox_list": {"limits": [{"window": "day", "max": 9}]}}});
    std::fs::write(folder.join("nine.json"), policy.to_string()).unwrap();
    let server = serve(
        user,
        &[
            ("PALISADE_POLICY_FOLDER", folder.to_str().unwrap()),
            ("PALISADE_POLICY_BIND", "*=nine"),
            ("PALISADE_QUOTA_FOR", "*=parallel_runs:4"),
        ],
    );
    let list = call("sandbox_list", json!({}));
    let keyed = Request::run("bash", "echo once").header("Idempotency-Key", "k");
    assert!(structured(&server, &list)["sandboxes"].is_array());
    assert_eq!(structured(&server, &keyed)["stdout"], "once\n");
    // As a newer server migrates the databases while this one has them open.
    let migrate = "import sqlite3, sys\nfor name in sys.argv[1:]: sqlite3.connect(name).execute('PRAGMA user_version = 99')";
    let gate = harness::state_dir(user).join("gate");
    let files = [gate.join("ledger.db"), gate.join("idempotency.db")];
    let migrated = std::process::Command::new("python3").args(["-c", migrate]).args(&files).status().unwrap();
    assert!(migrated.success());
    for request in [&list, &Request::run("bash", "echo no"), &keyed] {
        let result = structured(&server, request);
        assert_eq!(result["outcome"], "unavailable", "{result:#}");
        assert_eq!(result["error"]["code"], "store_too_new", "{result:#}");
    }
    // What is not counted goes on.
    let capabilities = structured(&server, &call("get_capabilities", json!({})));
    assert!(capabilities["languages"].is_array(), "{capabilities:#}");
}
