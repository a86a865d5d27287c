//! Policies in force: limits, side doors of hidden tools, changes of the files, and the commands about them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use functional::http::{Request, Server, modern_message};
use functional::policies::Policies;
use functional::socket::Socket;
use functional::{keys, own_folder, until};
use harness::mcp::Client;
use harness::{Build, Palisade, users};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Changes are in force within a second; the rest is for a machine under load.
const IN_FORCE: Duration = Duration::from_secs(10);

fn rules(default: &str, more: Value) -> Value {
    let mut rules = json!({"version": "1", "default": default});
    for (key, value) in more.as_object().into_iter().flatten() {
        rules[key] = value.clone();
    }
    rules
}

fn ask(client: &Client, method: &str, params: Value) -> Value {
    client.send(method, params).answer().expect("an answer")
}

fn names(answer: &Value, list: &str) -> Vec<String> {
    let list = answer["result"][list].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn completes_languages(client: &Client, prompt: &str) -> bool {
    let prompt = json!({"type": "ref/prompt", "name": prompt});
    let asked = json!({"ref": prompt, "argument": {"name": "language", "value": ""}});
    let completion = ask(client, "completion/complete", asked);
    completion["result"]["completion"]["values"].as_array().is_some_and(|values| !values.is_empty())
}

fn bash(code: &str) -> Value {
    json!({"language": "bash", "code": code})
}

/// The rule that refused a call.
fn refused_by(result: &Value) -> &str {
    assert_eq!(result["outcome"], "refused", "{result:#}");
    assert_eq!(result["error"]["code"], "policy_denied", "{result:#}");
    result["error"]["rule"].as_str().unwrap_or_default()
}

#[test]
fn the_shipped_policy_of_ten_a_minute_refuses_the_eleventh_program_until_the_next_minute() {
    let user = users()[0];
    // Eleven small programs take a few seconds, so they begin early in a minute.
    until(Duration::from_secs(60), "a minute begins", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        (now % 60 < 30).then_some(())
    });
    let mcp = Palisade::new(Build::Real, user, &["mcp"]).env("PALISADE_POLICY_BIND", "local=ten-a-minute");
    let client = Client::start(mcp);
    for number in 0..10 {
        let result = client.call("run", bash("echo ok"));
        assert_eq!(result["outcome"], "completed", "{number}: {result:#}");
    }
    let whole = client.call_whole("run", bash("echo ok"));
    let result = &whole["structuredContent"];
    assert_eq!(refused_by(result), "/tools/run/rules/10 a minute");
    assert_eq!(result["error"]["retryable"], true);
    let wait_ms = result["error"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait_ms), "{wait_ms}");
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("[POLICY DENIED] at most 10 programs a minute") && whole["isError"] == true,
        "{text}"
    );
    assert!(
        client.call("get_capabilities", json!({}))["languages"].is_array(),
        "other tools are not limited"
    );
}

#[test]
fn a_hidden_tool_cannot_be_reached_or_seen_by_any_side_door() {
    let user = users()[0];
    let policies = Policies::new(user, "doors", &rules("allow", json!({})));
    let client = policies.client(user);
    let sandbox = client.open(json!({}));
    let run = client.run(&sandbox, "bash", "echo data > file; echo said");
    let run_id = run["run_id"].as_str().unwrap_or_else(|| panic!("{run:#}")).to_owned();
    let resources = [
        "palisade://capabilities".to_owned(),
        format!("palisade://runs/{run_id}/log"),
        format!("palisade://sandboxes/{sandbox}/files/file"),
    ];
    for uri in &resources {
        let answer = ask(&client, "resources/read", json!({"uri": uri}));
        assert!(answer["result"]["contents"].is_array(), "{uri}: {answer:#}");
    }

    let hidden = ["wait", "read_file", "validate_code", "get_capabilities", "sandbox_list"];
    let begun = Instant::now();
    policies.write(&rules("allow", json!({"hide": hidden})));
    let list = until(IN_FORCE, "the tools are hidden", || {
        let list = ask(&client, "tools/list", json!({}));
        (!names(&list, "tools").contains(&"wait".to_owned())).then_some(list)
    });
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(list["result"]["cacheScope"], "private", "{list:#}");
    let shown = list.to_string();
    for name in hidden.iter().filter(|name| name.contains('_')) {
        assert!(!shown.contains(name), "{name} in the list of tools");
    }
    // The same answer as for a tool that does not exist, whatever the arguments are.
    let unknown = ask(&client, "tools/call", json!({"name": "zzzz", "arguments": {}}))["error"].to_string();
    for name in hidden {
        for arguments in
            [json!({}), json!({"run_id": run_id}), json!([1]), json!({"sandbox_id": "x", "y": 1})]
        {
            let answer = ask(&client, "tools/call", json!({"name": name, "arguments": arguments}));
            let told = answer["error"].to_string();
            let meant = told.split("did you mean").next().unwrap().replace(name, "zzzz");
            assert!(unknown.starts_with(meant.trim_end()), "{name} {arguments}: {told}, not {unknown}");
            let tools = told.split("the tools are ").nth(1).unwrap();
            assert!(hidden.iter().all(|hidden| !tools.contains(hidden)), "{told}");
        }
    }
    let nowhere =
        ask(&client, "resources/read", json!({"uri": "palisade://nowhere"}))["error"]["message"].clone();
    for uri in &resources {
        assert_eq!(ask(&client, "resources/read", json!({"uri": uri}))["error"]["message"], nowhere, "{uri}");
    }
    assert_eq!(ask(&client, "resources/list", json!({}))["result"]["resources"], json!([]));
    assert_eq!(ask(&client, "resources/templates/list", json!({}))["result"]["resourceTemplates"], json!([]));
    assert_eq!(
        names(&ask(&client, "prompts/list", json!({})), "prompts"),
        ["solve_with_code", "analyze_data"]
    );
    let prompt = ask(&client, "prompts/get", json!({"name": "debug_program", "arguments": {"code": "x"}}));
    assert_eq!(prompt["error"], ask(&client, "prompts/get", json!({"name": "zzzz"}))["error"]);
    let log = json!({"type": "ref/resource", "uri": "palisade://runs/{id}/log{?stream,offset,limit}"});
    let completion =
        ask(&client, "completion/complete", json!({"ref": log, "argument": {"name": "id", "value": "run_"}}));
    assert_eq!(completion["result"]["completion"]["values"], json!([]), "{completion:#}");
    assert!(completes_languages(&client, "solve_with_code"));
    assert!(!completes_languages(&client, "debug_program"), "it names a hidden tool");
    let told =
        ask(&client, "server/discover", json!({}))["result"]["instructions"].as_str().unwrap().to_owned();
    assert!(told.contains("`run`") && !told.contains("`wait`") && !told.contains("palisade://"), "{told}");
    let refused = client.call_whole("run", json!({"language": "bash", "code": "1", "sandbox_id": "nothing"}));
    assert!(!refused.to_string().contains("sandbox_list"), "a remedy names it: {refused:#}");
}

#[test]
fn a_task_cannot_be_asked_about_or_cancelled_when_wait_is_hidden_or_denied() {
    let user = users()[0];
    let policies = Policies::new(user, "tasks", &rules("allow", json!({})));
    let server = policies.server(user);
    let run_id =
        server.ask(&Request::run("bash", "echo said")).result()["structuredContent"]["run_id"].clone();
    let task = |method: &str, id: &Value| {
        let message = modern_message(1, method, json!({"taskId": id, "inputResponses": {}}));
        let able = r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        let message = message.replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, able);
        let request = Request::post(message).header("MCP-Protocol-Version", functional::http::MODERN);
        let request = request.header("Mcp-Method", method).header("Mcp-Name", id.as_str().unwrap());
        server.ask(&request).message()
    };
    let found = task("tasks/get", &run_id);
    assert!(found.to_string().contains("said"), "{found:#}");
    let missing = task("tasks/get", &json!("run_0123456789abcdef0123456789abcdef"))["error"].clone();
    assert!(missing["message"].is_string(), "{missing:#}");
    policies.write(&rules("allow", json!({"hide": ["wait"]})));
    until(IN_FORCE, "wait is hidden", || (task("tasks/get", &run_id)["error"] == missing).then_some(()));
    for method in ["tasks/cancel", "tasks/update"] {
        assert_eq!(task(method, &run_id)["error"], missing, "{method}");
    }
    let deny = json!({"tools": {"wait": {"deny_if": {"args.cancel": {"eq": true}}}}});
    policies.write(&rules("allow", deny));
    let denied = until(IN_FORCE, "cancelling is denied", || {
        let answer = task("tasks/cancel", &run_id);
        (answer["error"] != missing).then_some(answer)
    });
    assert_eq!(denied["error"]["data"]["error"]["rule"], "/tools/wait/deny_if/args.cancel-eq", "{denied:#}");
    assert!(task("tasks/get", &run_id).to_string().contains("said"));
}

#[test]
fn a_run_is_followed_to_its_end_when_its_caller_cannot_ask_about_it_later() {
    let user = users()[0];
    let client = Policies::new(user, "no-wait", &rules("allow", json!({"hide": ["wait"]}))).client(user);
    let result = client
        .call("run", json!({"language": "bash", "code": "sleep 1; echo end", "limits": {"wait_ms": 1}}));
    assert_eq!((&result["outcome"], &result["stdout"]), (&json!("completed"), &json!("end\n")), "{result:#}");
}

#[test]
fn a_denied_file_cannot_be_read_as_a_resource_or_under_another_spelling() {
    let user = users()[0];
    let deny = json!({"path": "args.path", "op": "eq", "value": "secret"});
    let policies =
        Policies::new(user, "files", &rules("allow", json!({"tools": {"read_file": {"deny_if": [deny]}}})));
    let client = policies.client(user);
    let sandbox = client.open(json!({"name": "box"}));
    client.run(&sandbox, "bash", "echo hush > secret; echo open > other");
    let rule = "/tools/read_file/deny_if/args.path-eq";
    for path in ["secret", "./secret", "/workspace/secret", "/workspace//./secret", ".//secret"] {
        for id in [sandbox.as_str(), "box"] {
            let result = client.call("read_file", json!({"sandbox_id": id, "path": path}));
            assert_eq!(refused_by(&result), rule, "{path}");
        }
    }
    for path in ["secret", "./secret", "%73ecret"] {
        let uri = format!("palisade://sandboxes/{sandbox}/files/{path}");
        let answer = ask(&client, "resources/read", json!({"uri": uri}));
        assert!(!answer.to_string().contains("hush"), "{answer:#}");
        assert_eq!(answer["error"]["data"]["error"]["rule"], rule, "{path}: {answer:#}");
    }
    let uri = format!("palisade://sandboxes/{sandbox}/files/other");
    assert!(ask(&client, "resources/read", json!({"uri": uri})).to_string().contains("open"));
}

#[test]
fn a_run_gives_no_url_of_a_file_that_the_caller_may_not_read() {
    let user = users()[0];
    let policies = Policies::new(user, "urls", &rules("allow", json!({})));
    let server = policies.server(user);
    let call = |tool: &str, arguments: Value| {
        let asked = Request::modern("tools/call", json!({"name": tool, "arguments": arguments}));
        server.ask(&asked).result()["structuredContent"].clone()
    };
    let sandbox = call("sandbox_open", json!({}))["sandbox_id"].as_str().unwrap().to_owned();
    let write = |name: &str| {
        let code = format!("echo x > {name}");
        call("run", json!({"language": "bash", "code": code, "sandbox_id": sandbox}))
    };
    let free = write("a");
    let url = free["artifacts"][0]["download_url"].as_str().unwrap_or_else(|| panic!("{free:#}"));
    let path = format!("/files/{}", url.split_once("/files/").unwrap().1);
    let fetch = || server.ask(&Request::get(&path).without("Authorization")).status;
    assert_eq!(fetch(), 200);
    for (name, rules) in [
        ("b", rules("allow", json!({"hide": ["read_file"]}))),
        ("c", rules("deny", json!({"tools": {"run": {}, "sandbox_open": {}}}))),
        ("d", rules("allow", json!({"tools": {"read_file": {"limits": [{"window": "day", "max": 5}]}}}))),
    ] {
        policies.write(&rules);
        server.signal(Signal::HUP);
        // A URL that was given before is judged again; its call was counted, so limits do not matter.
        let wanted = if name == "d" { 200 } else { 404 };
        until(IN_FORCE, "the URL is judged by the new rules", || (fetch() == wanted).then_some(()));
        let without = write(name);
        assert!(without["artifacts"][0]["download_url"].is_null(), "{name}: {without:#}");
        assert_eq!(without["outcome"], "completed", "{name}: {without:#}");
    }
}

#[test]
fn a_language_a_sandbox_or_a_context_under_another_name_is_judged_as_what_it_is() {
    let user = users()[0];
    let policies = Policies::new(user, "names", &rules("allow", json!({})));
    let client = policies.client(user);
    let sandbox = client.open(json!({"name": "box"}));
    let deny = json!([{"args.language": {"eq": "bash"}}, {"args.sandbox_id": {"eq": sandbox}}]);
    policies.write(&rules("allow", json!({"tools": {"run": {"deny_if": deny}}})));
    until(IN_FORCE, "bash is denied", || {
        (client.call("run", bash("true"))["outcome"] == "refused").then_some(())
    });
    for alias in ["bash", "sh", "shell", "SH", " Bash ", "BASH"] {
        let result = client.call("run", json!({"language": alias, "code": "true"}));
        assert_eq!(refused_by(&result), "/tools/run/deny_if/args.language-eq", "{alias}");
    }
    for name in [sandbox.clone(), "box".to_owned(), format!("{sandbox}#side"), "box#side".to_owned()] {
        let result = client.call("run", json!({"language": "python", "code": "1", "sandbox_id": name}));
        assert_eq!(refused_by(&result), "/tools/run/deny_if/args.sandbox_id-eq", "{name}");
    }
    // Clients with strict schemas send optional arguments as null, which means that they are absent.
    let result = client.call("run", json!({"language": "python", "code": "print(1)", "sandbox_id": null}));
    assert_eq!(result["outcome"], "completed", "{result:#}");
}

#[test]
fn the_second_of_two_equal_keys_is_judged_and_run() {
    let user = users()[0];
    let require = json!([{"args.language": {"eq": "python"}}]);
    let server =
        Policies::new(user, "twice", &rules("allow", json!({"tools": {"run": {"require": require}}})))
            .server(user);
    let call = |arguments: &str| {
        let message = modern_message(1, "tools/call", json!({"name": "run", "arguments": {"here": 1}}));
        let message = message.replace(r#"{"here":1}"#, arguments);
        let request = Request::post(message).header("MCP-Protocol-Version", functional::http::MODERN);
        let answer = server.ask(&request.header("Mcp-Method", "tools/call").header("Mcp-Name", "run"));
        answer.result()["structuredContent"].clone()
    };
    let code = r#""code":"print('py')""#;
    let refused = call(&format!(r#"{{"language":"python",{code},"language":"bash"}}"#));
    assert_eq!(refused_by(&refused), "/tools/run/require/args.language-eq");
    let ran = call(&format!(r#"{{"language":"bash",{code},"language":"python"}}"#));
    assert_eq!(ran["stdout"], "py\n", "{ran:#}");
}

#[test]
fn headers_that_disagree_with_the_body_and_batches_reach_no_tool() {
    let user = users()[0];
    let server = Policies::new(user, "headers", &rules("deny", json!({"tools": {"get_capabilities": {}}})))
        .server(user);
    let body =
        |name: &str| modern_message(1, "tools/call", json!({"name": name, "arguments": bash("echo ran")}));
    for (method, name) in [("tools/call", "get_capabilities"), ("tools/list", "run"), ("TOOLS/CALL", "run ")]
    {
        let request = Request::post(body("run")).header("MCP-Protocol-Version", functional::http::MODERN);
        let answer = server.ask(&request.header("Mcp-Method", method).header("Mcp-Name", name));
        assert!(
            !answer.text().contains("ran\\n") && answer.result().is_null(),
            "{method} {name}: {answer:?}"
        );
    }
    let batch = format!("[{},{}]", body("get_capabilities"), body("run"));
    let answer = server.ask(&Request::post(batch));
    assert!(answer.result().is_null() && !answer.text().contains("ran\\n"), "{answer:?}");
    let honest = server.ask(&Request::run("bash", "echo ran"));
    assert_eq!(refused_by(&honest.result()["structuredContent"]), "/default");
}

#[test]
fn policies_that_cannot_be_used_change_nothing_and_are_told() {
    let user = users()[0];
    let policies = Policies::new(user, "broken", &rules("deny", json!({"tools": {"run": {}}})));
    let server = policies.server(user);
    server.wait_until_ready();
    policies.write_text("{\"version\": \"1\",\n \"default\": \"allow\", \"default\": \"deny\"}");
    let page = until(IN_FORCE, "/readyz tells it", || {
        let page: Value = serde_json::from_str(&server.ask(&Request::get("/readyz")).text()).ok()?;
        page.get("outdated").is_some().then_some(page)
    });
    let reason = page["outdated"]["policies"].as_str().unwrap();
    assert!(reason.starts_with("p.json: line 2, column 22") && page["ready"] == true, "{page:#}");
    let stranger = server.ask(&Request::get("/readyz").without("Authorization"));
    assert!(!stranger.text().contains("p.json") && stranger.status == 200, "{}", stranger.text());
    assert_eq!(server.log().matches("\"reload_failed\"").count(), 1, "{}", server.log());
    server.is_well();
    let open = server.ask(&Request::modern("tools/call", json!({"name": "sandbox_open", "arguments": {}})));
    assert_eq!(refused_by(&open.result()["structuredContent"]), "/default", "the old rules are in force");

    policies.write(&rules("allow", json!({})));
    until(IN_FORCE, "the new rules are in force", || {
        let open =
            server.ask(&Request::modern("tools/call", json!({"name": "sandbox_open", "arguments": {}})));
        open.result()["structuredContent"]["sandbox_id"].is_string().then_some(())
    });
    assert!(!server.ask(&Request::get("/readyz")).text().contains("outdated"));
}

#[test]
fn a_listener_is_told_when_its_list_of_tools_changes_and_only_then() {
    let user = users()[0];
    let policies = Policies::new(user, "listener", &rules("allow", json!({})));
    let server = policies.server(user);
    server.is_well();
    let list = || server.ask(&Request::modern("tools/list", json!({}))).message();
    let before = list();
    let mut socket = Socket::open(&server);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    socket
        .send(functional::socket::TEXT, modern_message(1, "subscriptions/listen", filter).as_bytes())
        .unwrap();
    let acknowledged = socket.message();
    assert!(acknowledged.to_string().contains("subscriptions/acknowledged"), "{acknowledged}");
    // Other rules, the same list: the next notification is about the change after it.
    policies.write(&rules("allow", json!({"tools": {"run": {"deny_if": {"args.x": {"eq": 1}}}}})));
    until(IN_FORCE, "they are in force", || server.log().contains("\"reloaded\"").then_some(()));
    policies.write(&rules("allow", json!({"hide": ["sandbox_open"]})));
    // A language whose check ends late changes the list too: each notification is about a list that differs.
    let mut seen = before;
    while names(&seen, "tools").contains(&"sandbox_open".to_owned()) {
        let told = socket.message();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        let now = list();
        assert_ne!(now["result"]["tools"], seen["result"]["tools"], "{told}");
        seen = now;
    }
}

#[test]
fn a_command_attached_by_the_control_socket_is_judged_as_a_run() {
    let user = users()[0];
    let policies = Policies::new(user, "attach", &rules("allow", json!({})));
    let state_dir = own_folder(user, "attach-state");
    fs::set_permissions(&state_dir, fs::Permissions::from_mode(0o700)).unwrap();
    let serve = policies.palisade(user, &["serve", "--listen", "127.0.0.1:0"]).env("PALISADE_LOG", "info");
    let serve = serve.env("PALISADE_STATE_DIR", state_dir.to_str().unwrap());
    let _server = Server::start_command(user, serve.into_command());
    let command = |args: &[&str]| {
        Palisade::new(Build::Real, user, args).env("PALISADE_STATE_DIR", state_dir.to_str().unwrap()).end()
    };
    let sandbox = command(&["sandbox", "open"]).stdout.trim().to_owned();
    let exec = || command(&["sandbox", "exec", "-i", &sandbox, "bash", "-c", "echo ran"]);
    let before = exec();
    assert_eq!(before.stdout, "ran\n", "{}", before.stderr);
    policies.write(&rules("allow", json!({"tools": {"run": {"deny_if": true, "reason": "not today"}}})));
    let after = until(IN_FORCE, "it is denied", || Some(exec()).filter(|ended| ended.stdout.is_empty()));
    assert!(after.stderr.contains("not today"), "{after:?}");
}

#[test]
fn lists_limits_and_explanations_are_those_of_the_key_that_asks() {
    let user = users()[0];
    let policies = Policies::new(user, "keyed", &rules("allow", json!({})));
    let server = policies.server(user);
    let key = keys::printed(&["create", "guest", "--scope", "run", "--policy", "locked-down"]);
    let list = || server.ask(&keys::showing(Request::modern("tools/list", json!({})), &key));
    let shown = until(IN_FORCE, "the key works", || Some(list()).filter(|answer| answer.status == 200));
    let shown = names(&shown.message(), "tools");
    assert!(shown.contains(&"run".to_owned()) && !shown.contains(&"sandbox_open".to_owned()), "{shown:?}");
    let owners = names(&server.ask(&Request::modern("tools/list", json!({}))).message(), "tools");
    assert!(owners.contains(&"sandbox_open".to_owned()), "{owners:?}");
    let refused = keys::call(&server, &key, "run", bash("true"));
    assert_eq!(refused_by(&refused), "/tools/run/require/args.language-in");
    let ran = keys::call(&server, &key, "run", json!({"language": "python", "code": "print(1)"}));
    assert_eq!(ran["stdout"], "1\n", "{ran:#}");
    let args =
        ["--principal", "key:guest", "--tool", "run", "--args", r#"{"language": "python", "code": "1"}"#];
    let explained = policies.palisade(user, &["policy", "explain"]).args(&args).end();
    assert!(explained.stdout.contains("key:guest -> locked-down (named by the key)"), "{}", explained.stdout);
    assert!(explained.stdout.contains("of 10 in this minute"), "{}", explained.stdout);
}

#[test]
fn what_was_called_can_be_learned_tested_and_explained() {
    let user = users()[0];
    let policies = Policies::new(
        user,
        "learn",
        &rules(
            "deny",
            json!({"tools": {
        "run": {"limits": [{"counter": "runs", "window": "day", "max": 3}]}}}),
        ),
    );
    let client = policies.client(user);
    client.call("run", json!({"language": "py", "code": "print('a secret')"}));
    client.call("run", bash("true"));
    client.call("sandbox_open", json!({}));
    assert!(client.end().success());
    let learned = policies.palisade(user, &["policy", "learn", "--since", "1h"]).end();
    assert_eq!(learned.status.code(), Some(0), "{}", learned.stderr);
    for part in [
        "  # 2 calls\n  run:",
        "{path: args.language, op: in, value: [bash, python]}",
        "{path: args.sandbox_id, op: exists, value: false}",
        "# sandbox_open: 1 calls, denied by /default",
    ] {
        assert!(learned.stdout.contains(part), "{part} in {}", learned.stdout);
    }
    assert!(
        !learned.stdout.contains("secret") && !learned.stdout.contains("args.code"),
        "{}",
        learned.stdout
    );
    let diff = policies.palisade(user, &["policy", "learn", "--policy", "ci"]).end();
    assert!(
        diff.stdout.starts_with("--- ci\n+++ learned\n") && diff.stdout.contains("\n+  # 2 calls"),
        "{}",
        diff.stdout
    );

    let args = ["--tool", "run", "--args", r#"{"language": "sh", "code": "1"}"#];
    let explained = policies.palisade(user, &["policy", "explain"]).args(&args).end();
    for part in [
        "allowed: by the policy p",
        "binding  * -> p (binding 1 of 1",
        "p.json",
        "counts 1 to 2 of 3 in this day",
    ] {
        assert!(explained.stdout.contains(part), "{part} in {}", explained.stdout);
    }
    let cases = own_folder(user, "cases").join("cases.yaml");
    fs::write(&cases, "cases: [{principal: local, tool: run, expect: allow}, {principal: local, tool: wait, expect: allow}]").unwrap();
    let tested = policies.palisade(user, &["policy", "test"]).args(&[cases.to_str().unwrap()]).end();
    assert_eq!(tested.status.code(), Some(1), "{tested:?}");
    assert!(tested.stdout.contains("the call of wait expects `allow`, but the rules say `deny` by /default"));
    assert_eq!(policies.palisade(user, &["policy", "test"]).end().status.code(), Some(0));
}
