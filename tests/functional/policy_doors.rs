//! What an earlier call began or gave, after a policy has changed: subscriptions, and answers to repeated calls.

use std::time::Duration;

use functional::http::{Request, modern_message};
use functional::policies::Policies;
use functional::socket::Socket;
use functional::until;
use harness::users;
use serde_json::{Value, json};

/// Changes are in force within a second; the rest is for a machine under load.
const IN_FORCE: Duration = Duration::from_secs(10);

fn rules(more: Value) -> Value {
    let mut rules = json!({"version": "1", "default": "allow"});
    for (key, value) in more.as_object().into_iter().flatten() {
        rules[key] = value.clone();
    }
    rules
}

fn names(answer: &Value, list: &str) -> Vec<String> {
    let list = answer["result"][list].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_subscription_tells_nothing_of_a_run_when_wait_is_hidden() {
    let user = users()[0];
    let policies = Policies::new(user, "subscription", &rules(json!({})));
    let server = policies.server(user);
    let arguments = json!({"language": "bash", "code": "while :; do echo x; sleep 0.1; done",
        "limits": {"wait_ms": 1, "timeout_ms": 60_000}});
    let call = json!({"name": "run", "arguments": arguments});
    let run = server.ask(&Request::modern("tools/call", call)).result()["structuredContent"].clone();
    let run_id = run["run_id"].as_str().unwrap_or_else(|| panic!("{run:#}"));
    policies.write(&rules(json!({"hide": ["wait"]})));
    let tools = || names(&server.ask(&Request::modern("tools/list", json!({}))).message(), "tools");
    until(IN_FORCE, "wait is hidden", || (!tools().contains(&"wait".to_owned())).then_some(()));
    let mut socket = Socket::open(&server);
    let uri = format!("palisade://runs/{run_id}/log");
    let filter = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": [uri]}});
    socket
        .send(functional::socket::TEXT, modern_message(1, "subscriptions/listen", filter).as_bytes())
        .unwrap();
    let acknowledged = socket.message();
    assert!(acknowledged.to_string().contains("subscriptions/acknowledged"), "{acknowledged}");
    // The run writes all the time, so what is told before the next change of the list would be about it.
    policies.write(&rules(json!({"hide": ["wait", "sandbox_open"]})));
    until(IN_FORCE, "both are hidden", || (!tools().contains(&"sandbox_open".to_owned())).then_some(()));
    let told = socket.message();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
}

#[test]
fn an_answer_is_not_given_again_when_the_policy_denies_its_call() {
    let user = users()[0];
    let policies = Policies::new(user, "again", &rules(json!({})));
    let server = policies.server(user);
    let call = json!({"name": "run", "arguments": {"language": "bash", "code": "echo said"}});
    let key = format!("again-{}", std::process::id());
    let repeated = Request::modern("tools/call", call).header("Idempotency-Key", &key);
    let answer = || server.ask(&repeated).result()["structuredContent"].clone();
    assert_eq!(answer()["stdout"], "said\n");
    assert_eq!(answer()["stdout"], "said\n", "the answer is given again");
    policies.write(&rules(json!({"tools": {"run": {"deny_if": {"args.language": {"eq": "bash"}}}}})));
    let denied = until(IN_FORCE, "the policy denies it", || {
        let answer = answer();
        (answer["outcome"] == "refused").then_some(answer)
    });
    assert_eq!(denied["error"]["code"], "policy_denied", "{denied:#}");
    assert!(!denied.to_string().contains("said"), "{denied:#}");
}

#[test]
fn the_instructions_of_a_session_do_not_name_hidden_tools() {
    let user = users()[0];
    let server = Policies::new(user, "instructions", &rules(json!({"hide": ["wait"]}))).server(user);
    let asked = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let result = server.ask(&Request::legacy("initialize", asked)).result();
    let told = result["instructions"].as_str().unwrap_or_else(|| panic!("{result:#}"));
    assert!(told.contains("`run`") && !told.contains("`wait`"), "{told}");
}
