//! What callers are told beside the answers of tools: answers to repeated calls, and instructions.

use std::time::Duration;

use functional::http::Request;
use functional::policies::Policies;
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
