//! Tests of calls that a human must approve.

use std::sync::Arc;

use policy::{Binding, Book, Caller, Syntax};
use sandbox::Outcome;
use serde_json::{Value, json};

use super::*;
use crate::gatekeeper::{
    APPROVAL_DENIED, APPROVAL_REQUIRED, Admitted, Gatekeeper, JudgedCall, POLICY_DENIED,
};
use crate::result::RunError;

fn book(rules: &Value) -> Book {
    let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
    let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
    Book::new(&files, vec![binding]).unwrap()
}

fn asking() -> Value {
    json!({"version": "1", "default": "allow", "tools": {"run": {
        "require_approval": {"args.x": {"gte": 0}}, "limits": [{"window": "day", "max": 2}]}}})
}

fn keeper(folder: &harness::TestFolder) -> Gatekeeper {
    Gatekeeper::new(folder.path(), book(&asking()))
}

async fn call(keeper: &Gatekeeper, arguments: Value) -> Result<Admitted, RunError> {
    let call = JudgedCall { caller: &Caller::local(), names: &["run"], arguments: &arguments };
    keeper.admit(call).await
}

async fn asked(keeper: &Gatekeeper, arguments: Value) -> ApprovalId {
    let error = call(keeper, arguments).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), (APPROVAL_REQUIRED, true), "{error:?}");
    let id = error.approval_id.unwrap();
    assert!(error.remedy.unwrap().contains(id.as_str()));
    id
}

async fn decide(keeper: &Gatekeeper, id: &ApprovalId, choice: Choice) {
    keeper.approvals().decide(id, choice, Approver::Local, None).await.unwrap();
}

#[tokio::test]
async fn an_approved_call_passes_once_and_other_arguments_need_another_approval() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let id = asked(&keeper, json!({"x": 1, "y": [1, 2]})).await;
    assert_eq!(asked(&keeper, json!({"y": [1, 2], "x": 1})).await, id, "the same call");
    decide(&keeper, &id, Choice::Approve).await;
    assert_ne!(asked(&keeper, json!({"x": 2, "y": [1, 2]})).await, id);
    let admitted = call(&keeper, json!({"x": 1, "y": [1, 2]})).await.unwrap();
    assert_eq!(admitted.approval.as_ref().unwrap().id(), &id);
    admitted.settle(Some(Outcome::Completed)).await;
    assert_ne!(asked(&keeper, json!({"x": 1, "y": [1, 2]})).await, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_equal_calls_at_once_exactly_one_passes() {
    let folder = harness::TestFolder::new();
    let servers = [Arc::new(keeper(&folder)), Arc::new(keeper(&folder))];
    let id = asked(&servers[0], json!({"x": 1})).await;
    decide(&servers[1], &id, Choice::Approve).await;
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let keeper = Arc::clone(&servers[number % 2]);
            tokio::spawn(async move { call(&keeper, json!({"x": 1})).await.is_ok() })
        })
        .collect();
    let mut passed = 0;
    for one in calls {
        passed += usize::from(one.await.unwrap());
    }
    assert_eq!(passed, 1);
}

#[tokio::test]
async fn a_call_that_a_human_denied_is_refused_without_asking_again() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let id = asked(&keeper, json!({"x": 1})).await;
    keeper.approvals().decide(&id, Choice::Deny, Approver::Local, Some("too dear".to_owned())).await.unwrap();
    let error = call(&keeper, json!({"x": 1})).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), (APPROVAL_DENIED, false));
    assert_eq!((error.message.as_str(), error.approval_id), ("a human denied this call: too dear", Some(id)));
}

#[tokio::test]
async fn an_approval_does_not_outlive_a_policy_that_denies_or_another_rule() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let id = asked(&keeper, json!({"x": 1})).await;
    decide(&keeper, &id, Choice::Approve).await;
    keeper.replace(book(&json!({"version": "1", "default": "allow", "tools": {"run": {
        "require_approval": true, "deny_if": {"args.x": {"eq": 1}}}}})));
    assert_eq!(call(&keeper, json!({"x": 1})).await.unwrap_err().code, POLICY_DENIED);
    keeper
        .replace(book(&json!({"version": "1", "default": "allow", "all_tools": {"require_approval": true}})));
    assert_ne!(asked(&keeper, json!({"x": 1})).await, id, "another rule asks for its own approval");
    keeper.replace(book(&asking()));
    assert!(call(&keeper, json!({"x": 1})).await.is_ok(), "the first policy again");
}

#[tokio::test]
async fn only_an_approved_call_counts_and_a_reached_limit_keeps_the_approval() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    for _ in 0..3 {
        asked(&keeper, json!({"x": 1})).await;
    }
    let id = asked(&keeper, json!({"x": 1})).await;
    decide(&keeper, &id, Choice::Approve).await;
    for _ in 0..2 {
        call(&keeper, json!({})).await.unwrap().settle(None).await;
    }
    assert_eq!(call(&keeper, json!({"x": 1})).await.unwrap_err().code, POLICY_DENIED);
    let (kept, arguments) = keeper.approvals().get(&id).await.unwrap();
    assert_eq!((kept.state, arguments), (ApprovalState::Approved, json!({"x": 1})));
}

#[tokio::test]
async fn an_approved_call_that_had_no_effect_may_be_made_again() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let id = asked(&keeper, json!({"x": 1})).await;
    decide(&keeper, &id, Choice::Approve).await;
    for outcome in [Outcome::Unavailable, Outcome::Refused, Outcome::Failed] {
        call(&keeper, json!({"x": 1})).await.unwrap().settle(Some(outcome)).await;
    }
    assert_ne!(asked(&keeper, json!({"x": 1})).await, id, "a program that failed has run");
}

#[tokio::test]
async fn what_a_human_cannot_be_shown_is_refused() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let error = call(&keeper, json!({"x": 1, "code": "a".repeat(300 << 10)})).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), ("approval_too_large", false));
}

#[tokio::test]
async fn the_local_user_is_asked_at_the_client_and_others_at_the_server() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let arguments = json!({"x": 1});
    for (caller, by) in [
        (Caller::local(), policy::ApproveBy::Caller),
        (Caller::token_holder(), policy::ApproveBy::Operator),
        (Caller::owner(Principal::anonymous()), policy::ApproveBy::Operator),
    ] {
        let call = JudgedCall { caller: &caller, names: &["run"], arguments: &arguments };
        let id = keeper.admit(call).await.unwrap_err().approval_id.unwrap();
        assert_eq!(keeper.approvals().get(&id).await.unwrap().0.by, by, "{caller}");
    }
}

#[tokio::test]
async fn a_call_that_waits_wakes_when_another_process_decides() {
    let folder = harness::TestFolder::new();
    let keeper = keeper(&folder);
    let id = asked(&keeper, json!({"x": 1})).await;
    let soon = Duration::from_millis(300);
    assert_eq!(keeper.approvals().until_decided(&id, soon).await.unwrap().state, ApprovalState::Pending);
    let other = ApprovalStore::new(folder.path());
    let decided = {
        let id = id.clone();
        std::thread::spawn(move || other.decide(&id, Choice::Approve, (&Approver::Local, None), unix_ms()))
    };
    let found = keeper.approvals().until_decided(&id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(found.state, ApprovalState::Approved);
    decided.join().unwrap().unwrap();
    let void = keeper.approvals().void_of(&Principal::local()).await.unwrap();
    assert_eq!((void, keeper.approvals().list(Listed::Open).await.unwrap().len()), (1, 0));
}
