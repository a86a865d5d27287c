//! The admin API over a running server: every route as documented, scopes, keys, runs and sandboxes of all callers.

use functional::admin::{AdminClient, Operation, V1, json_request};
use functional::http::{Answer, Request, Server, Wire};
use functional::keys::{SECOND, call, create, printed, revoke, showing, status, time_until};
use functional::{SOON, marked, marker, until};
use harness::{Build, Palisade, state_dir, users};
use serde_json::{Value, json};

const NO_RUN: &str = "run_00000000000000000000000000000000";

/// A server with quotas.
fn server() -> Server {
    let user = users()[0];
    let palisade = Palisade::new(Build::Real, user, &["serve", "--listen", "127.0.0.1:0"])
        .env("PALISADE_LOG", "info")
        .env("PALISADE_QUOTA_FOR", "*=runs_per_minute:100;sandboxes:5")
        .env("PALISADE_POLICY_BIND", "key:bound-*=team");
    Server::start_command(user, palisade.into_command())
}

/// A key that the server knows.
fn known_key(server: &Server, name: &str, scopes: &str) -> String {
    let key = create(name, scopes);
    time_until(server, &key, 200);
    key
}

fn error_of(answer: &Answer) -> Value {
    answer.message()["error"].clone()
}

/// A run of that key that goes on until it is ended; its id.
fn endless_run(server: &Server, key: &str, word: &str) -> String {
    let code = format!("exec -a {word} sleep 300");
    let given = json!({"language": "bash", "code": code, "limits": {"wait_ms": 1}});
    let ran = call(server, key, "run", given);
    assert_eq!(ran["outcome"], "running", "{ran:#}");
    until(SOON, "the program runs", || (!marked(word).is_empty()).then_some(()));
    ran["run_id"].as_str().unwrap().to_owned()
}

/// A path of an operation with an id in it that nothing has.
fn path_of(operation: &Operation) -> String {
    let path = operation.path.strip_prefix(V1).unwrap();
    match path.split_once('{') {
        Some((before, after)) => format!("{before}{NO_RUN}{}", after.split_once('}').unwrap().1),
        None => path.to_owned(),
    }
}

fn request_of(operation: &Operation) -> Request {
    match operation.method.as_str() {
        "get" => Request::get(&format!("{V1}{}", path_of(operation))),
        _ => json_request(&path_of(operation), "{}"),
    }
}

/// The good request of every operation, and the status of its answer.
fn good_request(client: &AdminClient<'_>, operation: &Operation, things: &Things<'_>) -> Answer {
    let post = |path: &str, body: Value| client.post(path, &body);
    match operation.name.as_str() {
        "describe" => client.get("/openapi.json"),
        "list_keys" => client.get("/keys?state=all"),
        "create_key" => post("/keys", json!({"name": "made", "scopes": ["audit"], "expires_in_s": 60})),
        "revoke_key" => post("/keys/spare/revoke", json!({})),
        "rotate_key" => post("/keys/rotating/rotate", json!({"overlap_s": 5})),
        "list_policies" => client.get("/policies?limit=200"),
        "list_bindings" => client.get("/policies/bindings"),
        "explain_call" => {
            let arguments = json!({"language": "python", "code": "1"});
            post(
                "/policies/explain",
                json!({"principal": "key:bound-x", "tool": "run", "arguments": arguments}),
            )
        }
        "reload_policies" => post("/policies/reload", json!({})),
        "list_runs" => client.get("/runs"),
        "get_run" => client.get(&format!("/runs/{}", things.run_id)),
        "cancel_run" => post(&format!("/runs/{}/cancel", things.run_id), json!({})),
        "list_sandboxes" => client.get("/sandboxes"),
        "close_sandbox" => post(&format!("/sandboxes/{}/close", things.sandbox_id), json!({})),
        "list_approvals" => client.get("/approvals?state=all"),
        "get_approval" => client.get(&format!("/approvals/{}", things.approvals[0])),
        "approve" => things.approver.post(&format!("/approvals/{}/approve", things.approvals[0]), &json!({})),
        "deny" => things
            .approver
            .post(&format!("/approvals/{}/deny", things.approvals[1]), &json!({"reason": "no"})),
        "tail_audit" => client.get("/audit/entries?limit=5"),
        "export_audit" => client.get("/audit/export?format=ocsf&since_ms=1"),
        "verify_audit" => post("/audit/verify", json!({})),
        "list_audit_keys" => client.get("/audit/keys"),
        "get_checkpoint" => client.get("/audit/checkpoint"),
        "get_receipt" => client.get(&format!("/audit/receipts/{}", things.ended_id)),
        "list_quotas" => client.get("/quotas"),
        other => panic!("the operation {other} has no test"),
    }
}

/// What operations work on.
struct Things<'s> {
    run_id: String,
    ended_id: String,
    sandbox_id: String,
    /// Two that are pending.
    approvals: Vec<String>,
    approver: AdminClient<'s>,
}

/// A server whose policy asks an operator about each `sandbox_open` with a name that begins with `ask`.
fn asking_server() -> (Server, functional::policies::Policies) {
    let user = users()[0];
    let asks = json!({"when": {"args.name": {"regex": "^ask"}}, "approve_by": "operator"});
    let tool = json!({ "require_approval": asks });
    let rules = json!({"version": "1", "default": "allow", "tools": {"sandbox_open": tool}});
    let policies = functional::policies::Policies::new(user, "asking", &rules);
    let serve = policies
        .palisade(user, &["serve", "--listen", "127.0.0.1:0"])
        .env("PALISADE_LOG", "info")
        .env("PALISADE_QUOTA_FOR", "*=runs_per_minute:100;sandboxes:5");
    (Server::start_command(user, serve.into_command()), policies)
}

/// Calls that wait for an operator; their connections stay open.
fn ask_for_approvals(server: &Server, key: &str, names: &[&str]) -> (Vec<String>, Vec<Wire>) {
    let mut wires = Vec::new();
    for name in names {
        let call = json!({"name": "sandbox_open", "arguments": {"name": name}});
        let mut wire = server.connect();
        wire.send(&showing(Request::modern("tools/call", call), key).bytes(server));
        wires.push(wire);
    }
    let client = AdminClient::owner(server);
    let ids = until(SOON, "the calls wait", || {
        let listed = client.read("/approvals");
        let items = listed["items"].as_array().unwrap();
        (items.len() == names.len()).then(|| {
            let id_of =
                |name: &&str| items.iter().find(|one| one["preview"].as_str().unwrap().contains(name));
            names.iter().map(|name| id_of(name).unwrap()["id"].as_str().unwrap().to_owned()).collect()
        })
    });
    (ids, wires)
}

/// A key without a policy of its own, so that the binding of the server counts.
fn bound_key(server: &Server, name: &str, scopes: &str) -> String {
    let key = printed(&["create", name, "--scope", scopes]);
    time_until(server, &key, 200);
    key
}

#[test]
fn every_documented_route_answers_as_documented() {
    let (server, _policies) = asking_server();
    let key = bound_key(&server, "worker", "run,sandbox");
    create("spare", "run");
    create("rotating", "run");
    let run_id = endless_run(&server, &key, &marker("documented"));
    let ended = call(&server, &key, "run", json!({"language": "bash", "code": "true"}));
    let sandbox_id = call(&server, &key, "sandbox_open", json!({"name": "theirs"}))["sandbox_id"].clone();
    let (approvals, _wires) = ask_for_approvals(&server, &key, &["ask-1", "ask-2"]);
    let things = Things {
        run_id,
        ended_id: ended["run_id"].as_str().unwrap().to_owned(),
        sandbox_id: sandbox_id.as_str().unwrap().to_owned(),
        approvals,
        approver: AdminClient::with_key(&server, &known_key(&server, "approver", "approve")),
    };
    let client = AdminClient::owner(&server);
    let operations = client.operations();
    assert!(operations.len() >= 25, "{operations:?}");
    for operation in &operations {
        let answer = good_request(&client, operation, &things);
        assert!((200..300).contains(&answer.status), "{operation:?}: {answer:?}");
    }
    // What does not exist, as well.
    for operation in operations.iter().filter(|operation| operation.path.contains('{')) {
        let answer = client.send(request_of(operation), &operation.method, &path_of(operation));
        assert_eq!(answer.status, 404, "{operation:?}: {answer:?}");
    }
}

#[test]
fn the_document_in_the_tree_is_the_one_that_a_server_answers_with() {
    let server = Server::start();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/openapi.json");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(AdminClient::owner(&server).document, kept, "write it anew: cargo xtask manifests");
}

#[test]
fn each_route_with_too_little_scope_names_the_scope_that_it_needs() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    for held in ["run", "sandbox", "access", "packages", "approve", "audit"] {
        let key = known_key(&server, held, held);
        let narrow = AdminClient::with_key(&server, &key);
        for operation in client.operations() {
            if operation.scopes.iter().any(|scope| scope == held) {
                continue;
            }
            let answer = narrow.send(request_of(&operation), &operation.method, &path_of(&operation));
            assert_eq!(answer.status, 403, "{held} {operation:?}: {answer:?}");
            let error = error_of(&answer);
            assert_eq!(error["code"], "insufficient_scope");
            let needed =
                operation.scopes.iter().all(|scope| error["message"].as_str().unwrap().contains(scope));
            assert!(needed, "{operation:?}: {error}");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.contains(&format!("palisade:{}", operation.scopes[0])), "{challenge}");
        }
    }
    let admin = AdminClient::with_key(&server, &known_key(&server, "boss", "admin"));
    assert_eq!(admin.get("/keys").status, 200);
}

#[test]
fn a_server_that_asks_for_no_credential_still_asks_for_one_here() {
    let user = users()[0];
    let server = Server::start_as(user, &["--listen", "127.0.0.1:0", "--no-auth"]);
    for request in
        [Request::get("/admin/v1/keys"), Request::get("/admin/v1/openapi.json"), json_request("/keys", "{}")]
    {
        let answer = server.ask(&request.without("Authorization"));
        assert_eq!(answer.status, 401, "{answer:?}");
        let error = error_of(&answer);
        assert_eq!(error["code"], "no_credential");
        assert!(error["message"].as_str().unwrap().contains("palisade keys create"), "{error}");
    }
    assert_eq!(server.ask(&Request::get("/metrics").without("Authorization")).status, 200);
    let key = known_key(&server, "boss", "admin");
    assert_eq!(server.ask(&showing(Request::get("/admin/v1/keys"), &key)).status, 200);
    // The user of the server, on its control socket, needs none.
    let mut wire = Wire::unix(&state_dir(user).join("control.sock"));
    wire.send(b"GET /admin/v1/keys HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(wire.answer().status, 200);
}

#[test]
fn a_key_made_here_works_is_shown_once_and_ends_when_it_is_revoked() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    let wanted = json!({"name": "made", "scopes": ["run"], "policy": "open", "expires_in_s": 3600});
    let made = client.post("/keys", &wanted);
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")));
    let secret = made.message()["secret"].as_str().unwrap().to_owned();
    assert!(time_until(&server, &secret, 200) < SECOND * 10);
    let ran = call(&server, &secret, "run", json!({"language": "bash", "code": "echo well"}));
    assert_eq!(ran["stdout"], "well\n");
    let listed = client.get("/keys").text();
    assert!(listed.contains("made") && !listed.contains(secret.split('_').nth(2).unwrap()), "{listed}");

    let again = client.post("/keys", &wanted);
    assert_eq!((again.status, &error_of(&again)["code"]), (409, &json!("name_taken")));
    let rotated =
        client.post("/keys/made/rotate", &json!({})).message()["secret"].as_str().unwrap().to_owned();
    assert!(
        time_until(&server, &secret, 401) < SECOND * 10 && time_until(&server, &rotated, 200) < SECOND * 10
    );
    let id = client.read("/keys")["items"][0]["id"].as_str().unwrap().to_owned();
    let revoked = client.post(&format!("/keys/{id}/revoke"), &json!({})).message();
    assert_eq!(revoked["state"], "revoked");
    assert!(time_until(&server, &rotated, 401) < SECOND * 10);
    assert_eq!(client.post("/keys/made/rotate", &json!({})).status, 409);
    assert_eq!(client.read("/keys")["items"], json!([]));
    assert_eq!(client.read("/keys?state=all")["items"][0]["state"], "revoked");
    for shown in [&secret, &rotated] {
        assert!(!server.log().contains(shown.split('_').nth(2).unwrap()), "the secret is in the log");
    }
    assert!(server.log().contains("key_created") && server.log().contains("key_revoked"));
}

#[test]
fn an_administrator_whose_key_is_revoked_sees_nothing_any_more() {
    let server = Server::start();
    let key = known_key(&server, "boss", "admin");
    let client = AdminClient::with_key(&server, &key);
    assert_eq!(client.get("/keys").status, 200);
    revoke("boss");
    time_until(&server, &key, 401);
    let answer = client.get("/keys");
    assert_eq!((answer.status, &error_of(&answer)["code"]), (401, &json!("invalid_token")));
    assert_eq!(status(&server, &server.token), 200);
}

#[test]
fn runs_of_others_are_seen_and_ended_by_administrators_only() {
    let server = Server::start();
    let (first, second) = (known_key(&server, "first", "run"), known_key(&server, "second", "run"));
    let word = marker("theirs");
    let run_id = endless_run(&server, &first, &word);
    let hidden = call(&server, &second, "wait", json!({"run_id": run_id, "timeout_ms": 1}));
    assert_eq!(hidden["error"]["code"], "unknown_run", "{hidden:#}");
    let boss = AdminClient::with_key(&server, &known_key(&server, "boss", "admin"));
    let shown = boss.read(&format!("/runs/{run_id}"));
    assert_eq!((&shown["outcome"], &shown["language"]), (&json!("running"), &json!("bash")));
    let owner = shown["principal"].as_str().unwrap().to_owned();
    let listed = |principal: &str| {
        boss.read(&format!("/runs?principal={principal}"))["items"].as_array().unwrap().len()
    };
    assert_eq!((listed(&owner), listed("key:nobody")), (1, 0));
    let ended = boss.post(&format!("/runs/{run_id}/cancel"), &json!({})).message();
    assert_eq!(ended["outcome"], "killed", "{ended:#}");
    assert!(marked(&word).is_empty());
    assert_eq!(call(&server, &first, "wait", json!({"run_id": run_id}))["outcome"], "killed");
    let kept = boss.post(&format!("/runs/{run_id}/cancel"), &json!({})).message();
    assert_eq!((&kept["outcome"], &kept["ended_ms"]), (&json!("killed"), &ended["ended_ms"]));
    assert!(!boss.get(&format!("/runs/{run_id}")).text().contains(&word), "the program is not shown");
}

#[test]
fn a_run_of_another_server_is_seen_and_must_be_ended_there() {
    let (here, there) = (Server::start(), Server::start());
    let word = marker("elsewhere");
    let run_id = endless_run(&there, &there.token.clone(), &word);
    let client = AdminClient::owner(&here);
    let shown = client.read(&format!("/runs/{run_id}"));
    assert_eq!((&shown["outcome"], &shown["is_elsewhere"]), (&json!("running"), &json!(true)));
    let refused = client.post(&format!("/runs/{run_id}/cancel"), &json!({}));
    assert_eq!((refused.status, &error_of(&refused)["code"]), (409, &json!("run_elsewhere")));
    let ended = AdminClient::owner(&there).post(&format!("/runs/{run_id}/cancel"), &json!({}));
    assert_eq!(ended.message()["outcome"], "killed");
}

#[test]
fn sandboxes_of_others_are_seen_and_closed_by_administrators() {
    let server = Server::start();
    let key = known_key(&server, "worker", "sandbox");
    let opened = call(&server, &key, "sandbox_open", json!({"name": "theirs"}));
    let id = opened["sandbox_id"].as_str().unwrap().to_owned();
    let client = AdminClient::owner(&server);
    let listed = client.read("/sandboxes");
    assert_eq!(
        (&listed["items"][0]["sandbox_id"], &listed["items"][0]["name"]),
        (&json!(id), &json!("theirs"))
    );
    let closed = client.post(&format!("/sandboxes/{id}/close"), &json!({})).message();
    assert_eq!(closed["closed"], true);
    assert_eq!(client.read("/sandboxes")["items"], json!([]));
    assert_eq!(call(&server, &key, "sandbox_list", json!({}))["sandboxes"], json!([]));
}

#[test]
fn lists_come_in_pages_without_a_gap() {
    let server = Server::start();
    for _ in 0..7 {
        server.is_well();
    }
    let client = AdminClient::owner(&server);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.read(&format!("/runs?limit=3{cursor}"));
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3);
        seen.extend(items.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let whole = client.read("/runs?limit=200");
    let all: Vec<_> = whole["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((seen.len(), &seen), (7, &all));
    for bad in ["0", "201", "-1", "x", "+5", "", "00005"] {
        assert_eq!(client.get(&format!("/runs?limit={bad}")).status, 400, "{bad}");
    }
    for bad in ["%00", "....", "x=y", &"A".repeat(600)] {
        assert_eq!(client.get(&format!("/runs?cursor={bad}")).status, 400, "{bad}");
    }
}

#[test]
fn quotas_are_told_with_their_use() {
    let server = server();
    let key = known_key(&server, "worker", "run,sandbox");
    call(&server, &key, "run", json!({"language": "bash", "code": "true"}));
    let client = AdminClient::owner(&server);
    let listed = client.read("/quotas");
    let of_worker =
        listed["items"].as_array().unwrap().iter().find(|one| one["label"] == "key:worker").unwrap();
    let quota = |name: &str| {
        let all = of_worker["quotas"].as_array().unwrap();
        all.iter().find(|quota| quota["amount"] == name).unwrap_or_else(|| panic!("{of_worker:#}")).clone()
    };
    assert_eq!(quota("runs_per_minute")["limit"], 100);
    assert!(quota("runs_per_minute")["used"].as_u64().unwrap() <= 1);
    assert_eq!((&quota("sandboxes")["limit"], &quota("sandboxes")["used"]), (&json!(5), &json!(0)));
}

#[test]
fn a_call_is_explained_as_the_command_line_explains_it() {
    let server = server();
    let client = AdminClient::owner(&server);
    let asked =
        json!({"principal": "key:bound-x", "tool": "run", "arguments": {"language": "python", "code": "1"}});
    let told = client.post("/policies/explain", &asked).message();
    assert_eq!((&told["verdict"], &told["policy"]), (&json!("allowed"), &json!("team")));
    let line = ["policy", "explain", "--json", "--principal", "key:bound-x", "--tool", "run", "--args"];
    let ended = Palisade::new(Build::Real, users()[0], &line)
        .args(&[&asked["arguments"].to_string()])
        .env("PALISADE_POLICY_BIND", "key:bound-*=team")
        .end();
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["rules"], told["rules"], "{}", ended.stderr);
    assert_eq!(client.read("/policies/bindings")["items"][0]["match"], "key:bound-*");
}

#[test]
fn an_approval_given_here_lets_the_call_pass_once_and_nobody_approves_its_own() {
    let (server, _policies) = asking_server();
    let worker = bound_key(&server, "worker", "sandbox,approve");
    let (ids, mut wires) = ask_for_approvals(&server, &worker, &["ask-me"]);
    let path = format!("/approvals/{}", ids[0]);
    let own = AdminClient::with_key(&server, &worker).post(&format!("{path}/approve"), &json!({}));
    assert_eq!((own.status, &error_of(&own)["code"]), (403, &json!("approval_own_call")));
    let approver = AdminClient::with_key(&server, &known_key(&server, "approver", "approve"));
    let shown = approver.read(&path);
    assert_eq!((&shown["state"], &shown["arguments"]["name"]), (&json!("pending"), &json!("ask-me")));
    let approved = approver.post(&format!("{path}/approve"), &json!({"reason": "fine"}));
    assert_eq!(approved.message()["state"], "approved", "{approved:?}");
    let passed = wires[0].answer().result()["structuredContent"].clone();
    assert!(passed["sandbox_id"].is_string(), "{passed:#}");
    let used = approver.read(&path);
    assert_eq!((&used["state"], &used["decided_by"]), (&json!("consumed"), &json!("key:approver")));
    let late = approver.post(&format!("{path}/deny"), &json!({}));
    assert_eq!((late.status, &error_of(&late)["code"]), (409, &json!("approval_decided")));
    let long = approver.post(&format!("{path}/deny"), &json!({"reason": "x".repeat(501)}));
    assert_eq!(long.status, 400, "{long:?}");
}

#[test]
fn the_audit_tells_what_operators_did_here_and_verifies() {
    let server = Server::start();
    let client = AdminClient::owner(&server);
    client.post("/keys", &json!({"name": "made", "scopes": ["run"], "policy": "open"}));
    client.post("/keys/made/revoke", &json!({}));
    let reader = AdminClient::with_key(&server, &known_key(&server, "reader", "audit"));
    let entries = reader.read("/audit/entries?limit=200");
    let kinds: Vec<_> =
        entries["items"].as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"key_created") && kinds.contains(&"key_revoked"), "{kinds:?}");
    let exported = reader.get("/audit/export").text();
    assert!(exported.lines().count() >= kinds.len());
    let report = reader.post("/audit/verify", &json!({})).message();
    assert_ne!(report["verdict"], "broken", "{report:#}");
    assert!(reader.read("/audit/keys")["keys"][0].as_str().unwrap().starts_with("palisade-audit+"));
    for bad in ["/audit/export?format=xml", "/audit/export?since_ms=x", "/audit/entries?cursor=eA"] {
        assert_eq!(reader.get(bad).status, 400, "{bad}");
    }
}
