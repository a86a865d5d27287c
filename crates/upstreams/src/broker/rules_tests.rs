//! Rules and budgets of calls: policies by every name of a tool, humans who do not answer, and what is clamped.

use std::time::Duration;

use engine::{Approver, Choice, Listed, NESTED_APPROVAL_PATIENCE};
use policy::{Binding, Book, Syntax};
use serde_json::{Value, json};

use super::tests::Stage;
use super::{CALL_PATIENCE, CALLS_PER_MINUTE_MAX};

pub(super) fn book(rules: &Value) -> Book {
    let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
    let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
    Book::new(&files, vec![binding]).unwrap()
}

#[tokio::test]
async fn a_rule_holds_for_every_spelling_of_a_tool() {
    for named in ["odd-server.echo", "odd_server.echo"] {
        let rules =
            json!({"version": "1", "default": "allow", "tools": {named: {"deny_if": {"args.a": {"eq": 1}}}}});
        let stage = Stage::under(book(&rules));
        let mut program = stage.connect();
        for server in ["odd-server", "odd_server"] {
            let denied = program.ask(json!({"id": 1, "call": [server, "echo"], "args": {"a": 1}})).await;
            assert_eq!(denied["error"]["code"], "policy_denied", "{named} {server}: {denied}");
            let passed = program.ask(json!({"id": 1, "call": [server, "echo"], "args": {"a": 2}})).await;
            assert!(passed.get("ok").is_some(), "{passed}");
        }
        assert_eq!((stage.host.calls().len(), stage.used().denied), (2, 2));
    }
}

#[tokio::test]
async fn a_tool_that_a_policy_hides_does_not_exist_for_programs() {
    let stage =
        Stage::under(book(&json!({"version": "1", "default": "allow", "hide": ["x.echo", "x.write"]})));
    let mut program = stage.connect();
    for tool in ["x.echo", "x.write", "x.nothing"] {
        assert_eq!(program.refused(tool, json!({})).await, "unknown_tool", "{tool}");
    }
    assert_eq!(program.ask(json!({"id": 1, "describe": "x.echo"})).await["error"]["code"], "unknown_tool");
    let found = program.ask(json!({"id": 1, "find": "echo"})).await;
    assert!(!found.to_string().contains("x.echo") && found["ok"]["total"] == 3, "{found}");
    assert!(stage.host.calls().is_empty());
    let approvals = stage.session.shared.gatekeeper.approvals();
    assert!(approvals.list(Listed::Open).await.unwrap().is_empty(), "nobody is asked about it");
}

#[tokio::test]
async fn a_policy_judges_and_asks_about_reads_of_resources() {
    let rules = json!({"version": "1", "default": "allow", "tools": {"x.read": {"require_approval": {"when": [{"args.uri": {"eq": "docs://b"}}]},
        "deny_if": {"args.uri": {"eq": "docs://secret"}}}}});
    let stage = Stage::under(book(&rules));
    let mut program = stage.connect();
    let denied = program.ask(json!({"id": 1, "read": ["x", "docs://secret"]})).await;
    assert_eq!(denied["error"]["code"], "policy_denied");
    assert!(program.ask(json!({"id": 1, "read": ["x", "docs://a"]})).await.get("ok").is_some());
    program.send(&json!({"id": 2, "read": ["x", "docs://b"]})).await;
    let approvals = stage.session.shared.gatekeeper.approvals();
    let asked = loop {
        match approvals.list(Listed::Open).await.unwrap().pop() {
            Some(asked) => break asked,
            None => tokio::task::yield_now().await,
        }
    };
    approvals.decide(&asked.id, Choice::Approve, Approver::Local, None).await.unwrap();
    assert_eq!(program.next().await.unwrap()["ok"]["contents"][0]["text"], "read docs://b");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_in_ten_minutes_is_denied() {
    let stage = Stage::new();
    let mut program = stage.connect_patient();
    let began = tokio::time::Instant::now();
    program.send(&json!({"id": 1, "call": "x.write"})).await;
    let answer = program.next().await.unwrap();
    assert_eq!(answer["error"]["code"], "approval_unanswered", "{answer}");
    assert!(answer["error"]["approval_id"].is_string());
    assert!(began.elapsed() >= NESTED_APPROVAL_PATIENCE - Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(stage.host.calls().is_empty() && stage.used().denied == 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_at_most_a_minute_whatever_its_program_asks_for() {
    let stage = Stage::new();
    let mut program = stage.connect_patient();
    let began = tokio::time::Instant::now();
    let slow = json!({"id": 1, "call": "x.slow", "args": {"ms": 3_600_000}, "timeout_ms": 3_600_000});
    let answer = program.ask(slow).await;
    assert_eq!(answer["error"]["code"], "timed_out", "{answer}");
    let took = began.elapsed();
    assert!(took >= CALL_PATIENCE - Duration::from_secs(1) && took < CALL_PATIENCE * 2, "{took:?}");
}

#[tokio::test]
async fn a_principal_beyond_its_calls_of_a_minute_is_told_when_to_come_back() {
    let stage = Stage::new();
    let rates = &stage.session.shared.rates;
    for _ in 0..CALLS_PER_MINUTE_MAX {
        rates.count(&stage.session.caller.principal, std::time::Instant::now()).unwrap();
    }
    let mut program = stage.connect();
    let answer = program.call("x.echo", json!({})).await;
    assert_eq!(answer["error"]["code"], "rate_limited", "{answer}");
    assert!(answer["error"]["retry_after_ms"].as_u64().unwrap() <= 60_000, "{answer}");
    assert!(stage.host.calls().is_empty());
}

#[test]
fn the_own_name_of_a_tool_is_the_last_of_its_names() {
    let names = super::session::names_of("odd-server", "a.b", "a_b");
    assert_eq!(names, ["odd_server.a_b", "odd_server.a.b", "odd-server.a_b", "odd-server.a.b"]);
    assert_eq!(super::session::names_of("x", "echo", "echo"), ["x.echo"]);
}

#[tokio::test]
async fn a_hidden_tool_is_told_like_one_that_does_not_exist() {
    let stage = Stage::under(book(
        &json!({"version": "1", "default": "allow", "hide": ["sink.echo", "odd_server.echo"]}),
    ));
    let mut program = stage.connect();
    // The run is marked: what is hidden is not told by its labels either.
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    for server in ["sink", "odd-server", "odd_server"] {
        for request in ["call", "describe"] {
            let mut told = Vec::new();
            for tool in ["echo", "ohce"] {
                let asked = match request {
                    "call" => json!({"id": 1, "call": [server, tool]}),
                    _ => json!({"id": 1, "describe": format!("{server}.{tool}")}),
                };
                let answer = program.ask(asked).await;
                assert_eq!(answer["error"]["code"], "unknown_tool", "{answer}");
                told.push(answer.to_string().replace(tool, "TOOL"));
            }
            assert_eq!(told[0], told[1], "{server} {request}");
        }
    }
    let used = stage.used();
    assert_eq!((used.calls, used.denied), (1, 0));
    let found = program.ask(json!({"id": 1, "find": "echo", "limit": 1})).await;
    assert_eq!((&found["ok"]["total"], &found["ok"]["more"]), (&json!(2), &json!(1)), "{found}");
}
