//! Keys: their life from `palisade keys create` to their end, on one server and on two.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use functional::http::{Request, Server, modern_message};
use functional::keys::{SECOND, call, create, keys, printed, revoke, showing, status, time_until};
use functional::socket::{Socket, TEXT, upgrade};
use functional::{Chance, SOON, marked, marker, until};
use harness::{Build, Palisade, state_dir, users};
use serde_json::{Value, json};

fn listed(more: &[&str]) -> Vec<Value> {
    let ended = keys(&[&["list", "--json"], more].concat());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn open_sandbox(server: &Server, key: &str) -> String {
    let opened = call(server, key, "sandbox_open", json!({}));
    opened["sandbox_id"].as_str().unwrap_or_else(|| panic!("{opened:#}")).to_owned()
}

#[test]
fn a_key_lives_from_its_creation_to_its_revocation() {
    let server = Server::start();
    let key = create("ci", "run");
    assert!(time_until(&server, &key, 200) < SECOND);
    let ran = call(&server, &key, "run", json!({"language": "bash", "code": "echo well"}));
    assert_eq!(ran["stdout"], "well\n", "{ran:#}");
    let listed_now = listed(&[]);
    assert_eq!(listed_now.len(), 1);
    assert_eq!(
        (&listed_now[0]["name"], &listed_now[0]["scopes"], &listed_now[0]["policy"], &listed_now[0]["state"]),
        (&json!("ci"), &json!(["run"]), &json!("open"), &json!("in force"))
    );
    assert!(!keys(&["list"]).stdout.contains(key.split('_').nth(2).unwrap()));
    revoke("ci");
    assert!(time_until(&server, &key, 401) < SECOND);
    assert!(listed(&[]).is_empty());
    assert_eq!(listed(&["--all"])[0]["state"], "revoked");
    assert_eq!(status(&server, &server.token), 200, "the server's own token goes on");
    assert!(!server.log().contains(key.split('_').nth(2).unwrap()), "the secret is in the log");
}

#[test]
fn a_revoked_key_loses_its_stream_its_websocket_and_its_programs_within_a_second() {
    let server = Server::start();
    let key = create("ci", "run,sandbox");
    time_until(&server, &key, 200);
    let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opened = server.ask(&showing(Request::legacy("initialize", opening), &key));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    let listen =
        Request::get("/mcp").header("Accept", "text/event-stream").header("Mcp-Session-Id", &session);
    let mut events = server.connect();
    events.send(&showing(listen, &key).bytes(&server));
    assert_eq!(events.head().unwrap().status, 200);
    let mut socket = Socket::ask(&server, &showing(upgrade(), &key));

    // Three programs: in a call that waits, handed over, and in a persistent sandbox over the WebSocket.
    let words = ["waiting", "handed-over", "in-sandbox"].map(marker);
    let sleep = |word: &str| json!({"language": "bash", "code": format!("exec -a {word} sleep 300")});
    let mut waiting = server.connect();
    let run = Request::modern("tools/call", json!({"name": "run", "arguments": sleep(&words[0])}));
    waiting.send(&showing(run, &key).bytes(&server));
    let mut given = sleep(&words[1]);
    given["limits"] = json!({"wait_ms": 1});
    let handed_over = call(&server, &key, "run", given);
    assert_eq!(handed_over["outcome"], "running", "{handed_over:#}");
    let mut given = sleep(&words[2]);
    given["sandbox_id"] = json!(open_sandbox(&server, &key));
    let message = modern_message(7, "tools/call", json!({"name": "run", "arguments": given}));
    socket.send(TEXT, message.as_bytes()).unwrap();
    until(SOON, "all programs run", || (server.metric("palisade_runs_live ") >= 3.0).then_some(()));

    revoke("ci");
    let begun = Instant::now();
    events.rest();
    let answered = waiting.try_answer().map_or(401, |answer| answer.status);
    let is_ended = socket.is_ended();
    // Twice the promise: two cores also run the other tests.
    assert!(begun.elapsed() < SECOND * 2, "{:?}", begun.elapsed());
    assert_eq!((answered, is_ended), (401, true));
    until(SOON, "no program is left", || (server.metric("palisade_runs_live ") == 0.0).then_some(()));
    for word in &words {
        assert!(marked(word).is_empty(), "{word}");
    }
    server.is_well();
}

#[test]
fn what_programs_left_in_a_sandbox_ends_with_the_key() {
    let server = Server::start();
    let key = create("ci", "run,sandbox");
    time_until(&server, &key, 200);
    let word = marker("left-behind");
    let code = format!("setsid -f bash -c 'exec -a {word} sleep 300' </dev/null >/dev/null 2>&1");
    let given = json!({"language": "bash", "code": code, "sandbox_id": open_sandbox(&server, &key)});
    assert_eq!(call(&server, &key, "run", given)["outcome"], "completed");
    until(SOON, "the process runs", || (!marked(&word).is_empty()).then_some(()));
    revoke("ci");
    until(SOON, "the process is gone", || marked(&word).is_empty().then_some(()));
    server.is_well();
}

#[test]
fn two_servers_of_one_state_directory_notice_a_key_and_its_end_within_a_second() {
    let (first, second) = (Server::start(), Server::start());
    let key = create("ci", "run");
    assert!(time_until(&first, &key, 200).max(time_until(&second, &key, 200)) < SECOND);
    let mut socket = Socket::ask(&second, &showing(upgrade(), &key));
    revoke("ci");
    let begun = Instant::now();
    assert!(time_until(&first, &key, 401).max(time_until(&second, &key, 401)) < SECOND);
    assert!(socket.is_ended());
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

#[test]
fn a_reused_name_inherits_nothing() {
    let server = Server::start();
    let old = create("ci", "run,sandbox");
    time_until(&server, &old, 200);
    let sandbox = open_sandbox(&server, &old);
    call(&server, &old, "write_file", json!({"sandbox_id": sandbox, "path": "f", "text": "secret"}));
    let run = call(&server, &old, "run", json!({"language": "bash", "code": "echo secret"}));
    revoke("ci");
    let new = create("ci", "run,sandbox");
    time_until(&server, &new, 200);
    assert_eq!(call(&server, &new, "sandbox_list", json!({}))["sandboxes"], json!([]));
    let read = call(&server, &new, "read_file", json!({"sandbox_id": sandbox, "path": "f"}));
    assert_eq!(read["error"]["code"], "unknown_sandbox", "{read:#}");
    let waited = call(&server, &new, "wait", json!({"run_id": run["run_id"]}));
    assert!(!waited.to_string().contains("secret"), "{waited:#}");
    let ids: Vec<_> = listed(&["--all"]).iter().map(|key| key["principal"].to_string()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_rotated_key_keeps_what_it_has_and_its_old_secret_ends_with_the_overlap() {
    let server = Server::start();
    let first = create("ci", "run,sandbox");
    time_until(&server, &first, 200);
    let sandbox = open_sandbox(&server, &first);
    let second = printed(&["rotate", "ci", "--overlap", "2s"]);
    assert!(time_until(&server, &second, 200) < SECOND);
    assert_eq!(status(&server, &first), 200, "during the overlap");
    let mut socket = Socket::ask(&server, &showing(upgrade(), &first));
    let mut other = Socket::ask(&server, &showing(upgrade(), &second));
    assert!(time_until(&server, &first, 401) < SECOND * 3);
    assert!(socket.is_ended());
    let sandboxes = call(&server, &second, "sandbox_list", json!({}))["sandboxes"].clone();
    assert_eq!(sandboxes[0]["sandbox_id"], json!(sandbox), "the sandbox stays with the key");
    let third = printed(&["rotate", "ci"]);
    assert!(time_until(&server, &second, 401) < SECOND && other.is_ended());
    assert_eq!(status(&server, &third), 200);
    assert_eq!(
        call(&server, &third, "sandbox_list", json!({}))["sandboxes"][0]["sandbox_id"],
        json!(sandbox)
    );
}

#[test]
fn a_key_ends_at_its_expiry_with_all_that_it_began() {
    let server = Server::start();
    server.is_well();
    let key = printed(&["create", "brief", "--scope", "run", "--policy", "open", "--expires", "3s"]);
    time_until(&server, &key, 200);
    let mut socket = Socket::ask(&server, &showing(upgrade(), &key));
    let word = marker("brief");
    let code = format!("exec -a {word} sleep 300");
    let given = json!({"language": "bash", "code": code, "limits": {"wait_ms": 1}});
    assert_eq!(call(&server, &key, "run", given)["outcome"], "running");
    assert!(time_until(&server, &key, 401) < SECOND * 4);
    let answer = server.ask(&showing(Request::modern("tools/list", json!({})), &key));
    assert!(answer.text().contains("expired"), "{answer:?}");
    assert!(socket.is_ended());
    until(SECOND * 2, "its program is cancelled", || marked(&word).is_empty().then_some(()));
}

#[test]
fn the_scope_run_opens_and_uses_no_sandbox_by_any_tool() {
    let server = Server::start();
    let (runner, owner) = (create("runner", "run"), server.token.clone());
    time_until(&server, &runner, 200);
    let sandbox = open_sandbox(&server, &owner);
    let listed = server.ask(&Request::modern("tools/list", json!({}))).result();
    let tools: Vec<String> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(tools.len() > 8, "{tools:?}");
    let mut refused = 0;
    for tool in &tools {
        let given = match tool.as_str() {
            "run" => json!({"sandbox_id": sandbox, "language": "bash", "code": "id"}),
            "read_file" | "list_files" => json!({"sandbox_id": sandbox, "path": "f"}),
            "write_file" => json!({"sandbox_id": sandbox, "path": "f", "text": "x"}),
            "sandbox_open" | "sandbox_list" => json!({}),
            _ => json!({"sandbox_id": sandbox}),
        };
        let answer = call(&server, &runner, tool, given);
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        refused += usize::from(code == "insufficient_scope");
        assert!(answer.get("sandbox_id").is_none_or(|id| *id == json!(sandbox)), "{tool}: {answer:#}");
        let uses_sandboxes = ["sandbox_", "read_file", "write_file", "list_files"];
        if uses_sandboxes.iter().any(|prefix| tool.starts_with(prefix)) {
            assert_eq!(code, "insufficient_scope", "{tool}: {answer:#}");
        }
        if tool == "run" {
            // A sandbox of another principal does not exist, whatever the scopes are.
            assert_eq!(code, "unknown_sandbox", "{answer:#}");
        }
    }
    assert_eq!(refused, 6);
    let sandboxes = call(&server, &owner, "sandbox_list", json!({}))["sandboxes"].clone();
    assert_eq!(sandboxes.as_array().unwrap().len(), 1);
}

#[test]
fn a_file_url_stops_with_the_key_that_asked_for_it() {
    let server = Server::start();
    let key = create("ci", "sandbox");
    time_until(&server, &key, 200);
    let sandbox = open_sandbox(&server, &key);
    let offered = call(&server, &key, "write_file", json!({"sandbox_id": sandbox, "path": "f"}));
    let url = offered["upload_url"].as_str().unwrap_or_else(|| panic!("{offered:#}"));
    let path = &url[url.find("/files/").unwrap()..];
    let put = || {
        let put = Request::new("PUT", path, b"content".to_vec()).without("Authorization");
        server.ask(&put).status
    };
    assert_eq!(put(), 201);
    let rotated = printed(&["rotate", "ci"]);
    time_until(&server, &rotated, 200);
    assert_eq!(put(), 201, "the key goes on with another secret");
    revoke("ci");
    time_until(&server, &rotated, 401);
    assert_eq!(put(), 404);
}

#[test]
fn metrics_and_details_are_for_the_scopes_admin_and_audit() {
    let server = Server::start();
    let made = [("run", 403), ("sandbox,packages,access,approve", 403), ("audit", 200), ("admin", 200)];
    for (index, (scopes, expected)) in made.into_iter().enumerate() {
        let key = create(&format!("k{index}"), scopes);
        time_until(&server, &key, 200);
        assert_eq!(server.ask(&showing(Request::get("/metrics"), &key)).status, expected, "{scopes}");
    }
    assert_eq!(server.ask(&Request::get("/metrics")).status, 200, "the owner");
    assert_eq!(server.ask(&Request::get("/metrics").without("Authorization")).status, 401);
}

#[test]
fn a_key_without_a_policy_may_do_nothing_and_its_maker_is_told() {
    let server = Server::start();
    let ended = keys(&["create", "idle", "--scope", "run"]);
    assert!(ended.stderr.contains("may call no tool"), "{}", ended.stderr);
    let key = ended.stdout.trim().to_owned();
    time_until(&server, &key, 200);
    let ran = call(&server, &key, "run", json!({"language": "bash", "code": "id"}));
    assert_eq!(ran["error"]["code"], "policy_denied", "{ran:#}");
}

#[test]
fn mistakes_of_the_command_line_are_told_with_a_remedy() {
    let usage = Some(2);
    for (args, status, words) in [
        (vec!["create", "a b", "--scope", "run"], usage, "cannot be the name"),
        (vec!["create", "owner", "--scope", "run"], usage, "cannot be the name"),
        (vec!["create", "x"], usage, "--scope"),
        (vec!["create", "x", "--scope", "root"], usage, "the scopes are run"),
        (vec!["create", "x", "--scope", "run", "--policy", "nowhere"], usage, "there are ci"),
        (vec!["create", "x", "--scope", "run", "--expires", "2020-01-01"], usage, "in the past"),
        (vec!["create", "x", "--scope", "run", "--expires", "soon"], usage, "90d"),
        (vec!["revoke", "x"], Some(1), "palisade keys list"),
        (vec!["rotate", "x"], Some(1), "palisade keys list"),
        (vec!["rotate", "x", "--overlap", "never"], usage, "10m"),
    ] {
        let ended = keys(&args);
        assert_eq!(ended.status.code(), status, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words) && ended.stdout.is_empty(), "{args:?}: {ended:?}");
    }
    assert!(!state_dir(users()[0]).join("gate/keys.db").exists());
    create("x", "run");
    let twice = keys(&["create", "x", "--scope", "run"]);
    assert_eq!(twice.status.code(), Some(1));
    assert!(twice.stderr.contains("palisade keys revoke x"), "{}", twice.stderr);
}

#[test]
fn a_key_that_was_printed_survives_a_kill_of_the_command() {
    let server = Server::start();
    let mut chance = Chance::new(11);
    let mut shown = Vec::new();
    for number in 0..30 {
        let name = format!("k{number}");
        let args = ["keys", "create", &name, "--scope", "run", "--policy", "open"];
        let mut command = Palisade::new(Build::Real, users()[0], &args).into_command();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(60) as u64));
        child.kill().ok();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        shown.extend(said.strip_suffix('\n').map(str::to_owned));
    }
    shown.push(create("last", "run"));
    time_until(&server, shown.last().unwrap(), 200);
    for key in &shown {
        assert_eq!(status(&server, key), 200);
    }
    assert!(listed(&[]).len() >= shown.len());
    let mode = |path: &str| {
        let found = fs::metadata(state_dir(users()[0]).join(path)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777
    };
    assert_eq!((mode("gate"), mode("gate/keys.db")), (0o700, 0o600));
}

#[test]
fn a_run_of_the_new_secret_goes_on_after_a_rotation() {
    let server = Server::start();
    let first = create("ci", "run");
    time_until(&server, &first, 200);
    let rotated = printed(&["rotate", "ci"]);
    // Longer than the server waits before it tells the end of the old secret again.
    let arguments = json!({"language": "bash", "code": "sleep 1.5; echo done"});
    let ran = call(&server, &rotated, "run", arguments);
    assert_eq!(ran["stdout"], "done\n", "{ran:#}");
}
