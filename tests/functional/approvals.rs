//! Calls that a human must approve: at the command line, by a form of the client, over restarts and several servers.

use std::time::Duration;

use functional::http::{MODERN, Request, Server, modern_message};
use functional::keys::{printed, revoke, showing};
use functional::policies::Policies;
use functional::{SOON, until};
use harness::mcp::Client;
use harness::{Build, Ended, Palisade, User, users};
use serde_json::{Value, json};

/// The form of a question in answers of the newer era.
const FORM: &str = "approval";

fn rules(run: Value) -> Value {
    json!({"version": "1", "default": "allow", "tools": {"run": run}})
}

fn asking() -> Value {
    rules(json!({"require_approval": {"reason": "ask first", "when": {"args.language": {"eq": "bash"}}}}))
}

fn bash(code: &str) -> Value {
    json!({"language": "bash", "code": code})
}

/// `palisade approvals ARGS` as the user of the servers.
fn approvals(user: User, args: &[&str]) -> Ended {
    Palisade::new(Build::Real, user, &["approvals"]).args(args).end()
}

fn approve(user: User, id: &str) {
    let ended = approvals(user, &["approve", id]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

/// All approvals, the newest first.
fn listed(user: User) -> Vec<Value> {
    let ended = approvals(user, &["list", "--all", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stdout))
}

/// The one approval that waits.
fn pending(user: User) -> String {
    until(SOON, "a call waits", || {
        let found = listed(user).into_iter().find(|one| one["state"] == "pending");
        found.map(|one| one["id"].as_str().unwrap().to_owned())
    })
}

fn state(user: User, id: &str) -> String {
    let found = listed(user).into_iter().find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}"))["state"].as_str().unwrap().to_owned()
}

/// The id of the question in a refusal.
fn asked(result: &Value) -> String {
    assert_eq!(
        (&result["outcome"], &result["error"]["code"]),
        (&json!("refused"), &json!("approval_required")),
        "{result:#}"
    );
    assert_eq!(result["error"]["retryable"], true, "{result:#}");
    result["error"]["approval_id"].as_str().unwrap().to_owned()
}

fn call(tool: &str, arguments: &Value) -> Request {
    Request::modern("tools/call", json!({"name": tool, "arguments": arguments}))
}

/// A call of a client that can show forms, with what its user answered.
fn call_with_forms(server: &Server, key: &str, arguments: &Value, more: Value) -> Value {
    let mut params = json!({"name": "run", "arguments": arguments});
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    let able = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    let message = modern_message(1, "tools/call", params)
        .replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, able);
    let request = Request::post(message).header("MCP-Protocol-Version", MODERN);
    let request = request.header("Mcp-Method", "tools/call").header("Mcp-Name", "run");
    let request = if key.is_empty() { request } else { showing(request, key) };
    server.ask(&request).result()
}

fn answered(asked: &Value, action: &str, content: Value) -> Value {
    json!({"requestState": asked["requestState"],
        "inputResponses": {FORM: {"action": action, "content": content}}})
}

#[test]
fn a_call_that_waits_passes_when_it_is_approved_at_the_command_line() {
    let user = users()[0];
    let client = Policies::new(user, "approved", &asking()).client(user);
    let waiting = client.begin("run", bash("echo done"));
    let id = pending(user);
    let shown = approvals(user, &["show", &id]).stdout;
    assert!(shown.contains("asks because  ask first") && shown.contains("code: \"echo done\""), "{shown}");
    assert!(waiting.result_so_far().is_none(), "it waits");
    approve(user, &id);
    let result = waiting.result();
    assert_eq!(
        (&result["outcome"], &result["stdout"]),
        (&json!("completed"), &json!("done\n")),
        "{result:#}"
    );
    assert_eq!(state(user, &id), "consumed");
    let late = approvals(user, &["approve", &id]);
    assert!(late.status.code() == Some(1) && late.stderr.contains("is consumed already"), "{}", late.stderr);
    assert_eq!(client.call("run", json!({"language": "python", "code": "1"}))["outcome"], "completed");
}

#[test]
fn a_denied_call_is_told_the_reason_and_nothing_runs() {
    let user = users()[0];
    let client = Policies::new(user, "denied", &asking()).client(user);
    let waiting = client.begin("run", bash("echo done"));
    let id = pending(user);
    let denied = approvals(user, &["deny", &id, "--reason", "not\u{202e} today"]);
    assert_eq!(denied.status.code(), Some(0), "{}", denied.stderr);
    for result in [waiting.result(), client.call("run", bash("echo done"))] {
        assert_eq!(result["error"]["code"], "approval_denied", "{result:#}");
        assert!(result["error"]["message"].as_str().unwrap().contains("not\u{202e} today"), "{result:#}");
        assert_eq!(result["error"]["retryable"], false);
    }
    let shown = approvals(user, &["show", &id]).stdout;
    assert!(shown.contains("by local: not<U+202E> today"), "{shown}");
}

#[test]
fn a_call_that_nobody_approves_is_refused_with_the_id_and_passes_once_later() {
    let user = users()[0];
    let policies = Policies::new(user, "later", &asking());
    let server = policies.server(user);
    let whole = server.ask(&call("run", &bash("echo done"))).result();
    let id = asked(&whole["structuredContent"]);
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("[APPROVAL REQUIRED] ask first"), "{text}");
    assert!(text.contains(&format!("palisade approvals approve {id}")), "{text}");
    // Another server of the state directory, after the first one has ended.
    drop(server);
    approve(user, &id);
    let server = policies.server(user);
    let run = || server.ask(&call("run", &bash("echo done"))).result()["structuredContent"].clone();
    assert_eq!(run()["outcome"], "completed");
    assert_ne!(asked(&run()), id, "once");
}

#[test]
fn of_fifty_replays_at_once_on_two_servers_exactly_one_passes() {
    let user = users()[0];
    let policies = Policies::new(user, "replays", &asking());
    let servers = [policies.server(user), policies.server(user)];
    let arguments = bash("echo passed");
    let mut calls = Vec::new();
    for number in 0..50 {
        let server = &servers[number % 2];
        let mut wire = server.connect();
        wire.send(&call("run", &arguments).bytes(server));
        calls.push(wire);
    }
    approve(user, &pending(user));
    let answers = calls.iter_mut().map(|wire| wire.answer().result()["structuredContent"].clone());
    let outcomes: Vec<Value> = answers.collect();
    let passed = outcomes.iter().filter(|one| one["outcome"] == "completed").count();
    assert_eq!(passed, 1, "{outcomes:#?}");
    assert!(
        outcomes
            .iter()
            .all(|one| one["outcome"] == "completed" || one["error"]["code"] == "approval_required")
    );
}

#[test]
fn an_answer_to_the_form_of_the_newer_era_decides_and_an_unclear_one_does_not() {
    let user = users()[0];
    let by_caller = rules(json!({"require_approval": true, "approve_by": "caller"}));
    let server = Policies::new(user, "forms", &by_caller).server(user);
    let arguments = bash("echo done");
    let ask = |more: Value| call_with_forms(&server, "", &arguments, more);
    let question = ask(json!({}));
    assert_eq!(question["resultType"], "input_required", "{question:#}");
    let form = &question["inputRequests"][FORM]["params"];
    assert!(form["message"].as_str().unwrap().contains("code: \"echo done\""), "{form:#}");
    let field = &form["requestedSchema"]["properties"]["decision"];
    assert_eq!((&field["enum"], field.get("default")), (&json!(["approve", "deny"]), None));
    assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
    let id = pending(user);
    for (action, content) in [
        ("decline", Value::Null),
        ("cancel", Value::Null),
        ("accept", json!({})),
        ("accept", json!({"decision": ""})),
        ("decline", json!({"decision": "deny"})),
    ] {
        let result = ask(answered(&question, action, content));
        assert_eq!(asked(&result["structuredContent"]), id, "{action}");
        assert_eq!(state(user, &id), "pending", "{action}");
    }
    // A state of another call, and one that was changed, are no answer to this question.
    let other = bash("echo other");
    let approved = json!({"decision": "approve"});
    let swapped = call_with_forms(&server, "", &other, answered(&question, "accept", approved.clone()));
    assert_eq!(swapped["resultType"], "input_required", "{swapped:#}");
    let state = question["requestState"].as_str().unwrap();
    for at in (0..state.len() - 1).step_by(5) {
        let letter = if state[at..].starts_with('x') { "y" } else { "x" };
        let mut forged = answered(&question, "accept", approved.clone());
        forged["requestState"] = json!(format!("{}{letter}{}", &state[..at], &state[at + 1..]));
        assert_eq!(ask(forged)["resultType"], "input_required", "{at} of {state}");
    }
    let answer = answered(&question, "accept", approved);
    let result = ask(answer.clone());
    assert_eq!(result["structuredContent"]["stdout"], "done\n", "{result:#}");
    assert_eq!(ask(answer)["resultType"], "input_required", "the answer counts once");
    let denied =
        call_with_forms(&server, "", &other, answered(&swapped, "accept", json!({"decision": "deny"})));
    assert_eq!(denied["structuredContent"]["error"]["code"], "approval_denied", "{denied:#}");
}

#[test]
fn a_caller_over_http_is_not_asked_about_its_own_call() {
    let user = users()[0];
    let policies = Policies::new(user, "operator", &rules(json!({"require_approval": true})));
    let server = policies.server(user);
    let result = call_with_forms(&server, "", &bash("echo done"), json!({}));
    asked(&result["structuredContent"]);
}

#[test]
fn a_call_that_waits_ends_when_its_caller_is_gone_and_has_no_effect() {
    let user = users()[0];
    let policies = Policies::new(user, "gone", &asking());
    let server = policies.server(user);
    let sandbox =
        server.ask(&call("sandbox_open", &json!({}))).result()["structuredContent"]["sandbox_id"].clone();
    let arguments = json!({"language": "bash", "code": "echo ran > ran", "sandbox_id": sandbox});
    let mut wire = server.connect();
    wire.send(&call("run", &arguments).bytes(&server));
    let id = pending(user);
    drop(wire);
    until(SOON, "the call has ended", || {
        (server.metric("palisade_http_requests_in_flight") <= 1.0).then_some(())
    });
    approve(user, &id);
    let read = call("read_file", &json!({"sandbox_id": sandbox, "path": "ran"}));
    assert_eq!(server.ask(&read).result()["structuredContent"]["outcome"], "refused", "nothing ran");
    assert_eq!(state(user, &id), "approved");
    assert_eq!(server.ask(&call("run", &arguments)).result()["structuredContent"]["outcome"], "completed");
}

#[test]
fn approvals_of_a_revoked_key_end_with_it() {
    let user = users()[0];
    let policies = Policies::new(user, "revoked", &asking());
    let key = printed(&["create", "agent", "--scope", "run"]);
    let server = policies.server(user);
    let mut wire = server.connect();
    wire.send(&showing(call("run", &bash("echo done")), &key).bytes(&server));
    let id = pending(user);
    revoke("agent");
    until(SOON, "the approval has ended", || (state(user, &id) == "expired").then_some(()));
    let late = approvals(user, &["approve", &id]);
    assert!(late.status.code() == Some(1) && late.stderr.contains("is expired already"), "{}", late.stderr);
}

#[test]
fn side_doors_need_the_same_approval_and_hidden_tools_stay_hidden() {
    let user = users()[0];
    let read = json!({"read_file": {"require_approval": true}});
    let policies = Policies::new(user, "doors", &json!({"version": "1", "default": "allow", "tools": read}));
    let client = policies.client(user);
    let sandbox = client.open(json!({}));
    client.run(&sandbox, "bash", "echo data > file");
    let uri = format!("palisade://sandboxes/{sandbox}/files/file");
    let read = || client.send("resources/read", json!({"uri": uri})).answer().unwrap();
    let refused = read();
    assert_eq!(refused["error"]["data"]["error"]["code"], "approval_required", "{refused:#}");
    approve(user, refused["error"]["data"]["error"]["approval_id"].as_str().unwrap());
    assert!(read().to_string().contains("data"), "it passes");
    assert_eq!(read()["error"]["data"]["error"]["code"], "approval_required", "once");
    let before = listed(user).len();
    let hiding =
        json!({"version": "1", "default": "allow", "hide": ["run"], "all_tools": {"require_approval": true}});
    policies.write(&hiding);
    until(SOON, "the tool is hidden", || {
        let answer = client.begin("run", bash("echo done")).answer().unwrap();
        answer["error"]["message"].as_str().map(|told| assert!(told.contains("there is no tool"), "{told}"))
    });
    assert_eq!(listed(user).len(), before, "nobody is asked about a hidden tool");
}

#[test]
fn an_idempotency_key_neither_replaces_an_approval_nor_uses_two() {
    let user = users()[0];
    let policies = Policies::new(user, "keyed", &asking());
    let server = policies.server(user);
    let keyed = call("run", &bash("echo $RANDOM")).header("Idempotency-Key", "k-1");
    let mut wires: Vec<_> = (0..4)
        .map(|_| {
            let mut wire = server.connect();
            wire.send(&keyed.bytes(&server));
            wire
        })
        .collect();
    let id = pending(user);
    approve(user, &id);
    let answers: Vec<Value> =
        wires.iter_mut().map(|wire| wire.answer().result()["structuredContent"]["stdout"].clone()).collect();
    assert!(answers[0].is_string() && answers.iter().all(|one| *one == answers[0]), "{answers:?}");
    assert_eq!(server.ask(&keyed).result()["structuredContent"]["stdout"], answers[0], "given again");
    let states: Vec<Value> = listed(user).iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["consumed"], "one question, one use");
}

#[test]
fn progress_is_told_while_a_call_waits() {
    let user = users()[0];
    let server = Policies::new(user, "progress", &asking()).server(user);
    let params = json!({"name": "run", "arguments": bash("echo done"), "_meta": {"progressToken": "t"}});
    let mut wire = server.connect();
    wire.send(&Request::modern("tools/call", params).bytes(&server));
    approve(user, &pending(user));
    let text = wire.answer().text();
    assert!(
        text.contains("notifications/progress") && text.contains("waiting for an approval (apr_"),
        "{text}"
    );
    assert!(text.contains("done"), "{text}");
}

#[test]
fn an_older_client_is_asked_by_elicitation() {
    let user = users()[0];
    let policies = Policies::new(user, "older", &asking());
    let mut legacy = Legacy::start(&policies, user);
    for (answer, wanted) in [
        (json!({"action": "decline"}), "approval_required"),
        (json!({"action": "accept", "content": {}}), "approval_required"),
        (json!({"action": "accept", "content": {"decision": "approve"}}), "done"),
        (json!({"action": "accept", "content": {"decision": "deny"}}), "approval_denied"),
    ] {
        let result = legacy.call(&bash("echo done"), &answer);
        assert!(result.to_string().contains(wanted), "{answer}: {result:#}");
    }
}

/// `palisade mcp` with the handshake of the older revisions and a client that shows forms.
struct Legacy {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    next: u64,
}

impl Legacy {
    fn start(policies: &Policies, user: User) -> Self {
        use std::io::BufRead;
        use std::process::Stdio;
        let mut command = policies.palisade(user, &["mcp"]).into_command();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("palisade starts");
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut legacy = Self { child, lines, next: 1 };
        let client = json!({"name": "suite", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": client});
        legacy.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}));
        legacy.until(|message| message["id"] == 0);
        legacy.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        legacy
    }

    fn write(&mut self, message: &Value) {
        use std::io::Write;
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.next().expect("the server answers").unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    /// Calls `run` and gives that answer to the form.
    fn call(&mut self, arguments: &Value, answer: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let params = json!({"name": "run", "arguments": arguments});
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        let form = self.until(|message| message["method"] == "elicitation/create");
        assert!(form["params"]["message"].as_str().unwrap().contains("echo done"), "{form:#}");
        self.write(&json!({"jsonrpc": "2.0", "id": form["id"], "result": answer}));
        self.until(|message| message["id"] == id && message.get("method").is_none())["result"].clone()
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_form_is_taken_back_when_the_operator_decides_first() {
    let user = users()[0];
    let policies = Policies::new(user, "first", &asking());
    let mut legacy = Legacy::start(&policies, user);
    let params = json!({"name": "run", "arguments": bash("echo done")});
    legacy.write(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}));
    let form = legacy.until(|message| message["method"] == "elicitation/create");
    approve(user, &pending(user));
    let closed = legacy.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(closed["params"]["requestId"], form["id"], "{closed:#}");
    let result = legacy.until(|message| message["id"] == 9 && message.get("method").is_none());
    assert!(result.to_string().contains("done"), "{result:#}");
}

#[test]
fn explain_says_who_is_asked() {
    let user = users()[0];
    let policies = Policies::new(user, "explained", &asking());
    let explain = |principal: &str| {
        let args = [
            "policy",
            "explain",
            "--principal",
            principal,
            "--tool",
            "run",
            "--args",
            r#"{"language":"bash"}"#,
        ];
        policies.palisade(user, &args).end().stdout
    };
    assert!(explain("local").contains("needs approval") && explain("local").contains("asks the caller"));
    assert!(explain("key:x").contains("asks the operator"), "{}", explain("key:x"));
}

#[test]
fn a_question_expires_after_the_time_of_the_policy() {
    let user = users()[0];
    let short = rules(json!({"require_approval": {"when": [], "approval_timeout": "1s"}}));
    let client: Client = Policies::new(user, "expiring", &short).client(user);
    let waiting = client.begin("run", bash("echo done"));
    let id = pending_or_expired(user);
    until(SOON, "it has expired", || (state(user, &id) == "expired").then_some(()));
    let result = waiting.result();
    assert_eq!(asked(&result), id, "the call does not wait for what is over");
    let late = approvals(user, &["approve", &id]);
    assert!(late.stderr.contains("is expired already"), "{}", late.stderr);
}

fn pending_or_expired(user: User) -> String {
    until(Duration::from_secs(30), "a call asked", || {
        listed(user).first().map(|one| one["id"].as_str().unwrap().to_owned())
    })
}
