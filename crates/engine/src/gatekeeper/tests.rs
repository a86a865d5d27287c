//! Tests of calls that are admitted or refused by policy.

use policy::{Binding, Syntax};
use serde_json::json;

use super::*;

fn gatekeeper(folder: &harness::TestFolder, rules: Value) -> Gatekeeper {
    let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
    let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
    Gatekeeper::new(folder.path(), Book::new(&files, vec![binding]).unwrap())
}

async fn admit(keeper: &Gatekeeper, tool: &str, arguments: Value) -> Result<Admitted, RunError> {
    keeper.admit(JudgedCall { caller: &Caller::local(), names: &[tool], arguments: &arguments }).await
}

#[tokio::test]
async fn without_policies_the_owner_is_free_and_another_caller_may_do_nothing() {
    let folder = harness::TestFolder::new();
    let keeper = Gatekeeper::new(folder.path(), Book::default());
    admit(&keeper, "run", json!({})).await.unwrap().settle(None).await;
    assert!(!keeper.binds(&Caller::local()) && !keeper.hides(&Caller::local(), &["run"]));
    let other = Caller { label: "key:x".into(), ..Caller::owner(Principal::new("key:1").unwrap()) };
    let call = JudgedCall { caller: &other, names: &["run"], arguments: &json!({}) };
    let error = keeper.admit(call).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.rule.as_deref()), (POLICY_DENIED, Some(NO_POLICY)));
    assert!(keeper.hides(&other, &["run"]));
    assert!(!folder.path().join("gate").exists(), "nothing was written");
}

#[tokio::test]
async fn the_third_identical_denial_says_not_to_try_again() {
    let folder = harness::TestFolder::new();
    let rules =
        json!({"version": "1", "default": "allow", "tools": {"run": {"deny_if": {"args.x": {"eq": 1}}}}});
    let keeper = gatekeeper(&folder, rules);
    let mut remedies = Vec::new();
    for _ in 0..3 {
        let error = admit(&keeper, "run", json!({"x": 1})).await.unwrap_err();
        assert_eq!(error.rule.as_deref(), Some("/tools/run/deny_if/args.x-eq"));
        assert!(!error.retryable);
        remedies.push(error.remedy.unwrap());
    }
    assert!(!remedies[1].contains("do not try it again") && remedies[2].contains("do not try it again"));
    let other = admit(&keeper, "run", json!({"x": 1, "y": 2})).await.unwrap_err();
    assert!(!other.remedy.unwrap().contains("do not try"), "another call");
}

#[tokio::test]
async fn a_call_that_was_refused_later_is_not_counted() {
    let folder = harness::TestFolder::new();
    let rules =
        json!({"version": "1", "default": "allow", "all_tools": {"limits": [{"window": "day", "max": 2}]}});
    let keeper = gatekeeper(&folder, rules);
    for outcome in [Outcome::Refused, Outcome::Unavailable, Outcome::Refused] {
        admit(&keeper, "run", json!({})).await.unwrap().settle(Some(outcome)).await;
    }
    admit(&keeper, "run", json!({})).await.unwrap().settle(Some(Outcome::Failed)).await;
    drop(admit(&keeper, "run", json!({})).await.unwrap());
    let error = admit(&keeper, "run", json!({})).await.unwrap_err();
    assert!(error.retryable && error.retry_after_ms.is_some(), "{error:?}");
}

#[tokio::test]
async fn a_call_that_needs_an_approval_does_not_happen() {
    let folder = harness::TestFolder::new();
    let rules = json!({"version": "1", "default": "allow", "tools": {"run": {"require_approval": true}}});
    let error = admit(&gatekeeper(&folder, rules), "run", json!({})).await.unwrap_err();
    assert_eq!(error.code, APPROVAL_REQUIRED);
}

#[tokio::test]
async fn a_limit_denies_before_a_human_is_asked_and_a_question_counts_nothing() {
    let folder = harness::TestFolder::new();
    let rules = json!({"version": "1", "default": "allow", "tools": {"run": {
        "limits": [{"window": "day", "max": 1}], "require_approval": {"args.x": {"eq": 1}}}}});
    let keeper = gatekeeper(&folder, rules);
    for _ in 0..2 {
        let error = admit(&keeper, "run", json!({"x": 1})).await.unwrap_err();
        assert_eq!(error.code, APPROVAL_REQUIRED);
    }
    drop(admit(&keeper, "run", json!({})).await.unwrap());
    let error = admit(&keeper, "run", json!({"x": 1})).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), (POLICY_DENIED, true));
}

#[tokio::test]
async fn what_another_call_gives_along_needs_rules_that_count_nothing_of_the_tool() {
    let folder = harness::TestFolder::new();
    let rules = json!({"version": "1", "default": "deny",
        "all_tools": {"limits": [{"window": "day", "max": 9}]},
        "tools": {"a": {}, "b": {"limits": [{"window": "day", "max": 9}]}, "c": {"require_approval": true}}});
    let keeper = gatekeeper(&folder, rules);
    let allows = |tool: &str| {
        let (names, arguments) = ([tool], json!({}));
        keeper.allows_uncounted(JudgedCall { caller: &Caller::local(), names: &names, arguments: &arguments })
    };
    assert!(allows("a") && !allows("b") && !allows("c") && !allows("d"));
}

#[tokio::test]
async fn newer_policies_that_cannot_be_used_are_told_until_others_are() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, json!({"version": "1", "default": "deny"}));
    let mut changes = keeper.changes();
    keeper.keep("line 1".to_owned());
    assert_eq!(keeper.flaw().as_deref(), Some("line 1"));
    assert!(!changes.has_changed().unwrap() && admit(&keeper, "run", json!({})).await.is_err());
    keeper.replace(Book::default());
    assert!(keeper.flaw().is_none() && changes.has_changed().unwrap());
    changes.borrow_and_update();
    keeper.want_reload();
    assert!(keeper.take_reload_wish() && !keeper.take_reload_wish());
}

#[tokio::test]
async fn what_an_earlier_call_gave_is_judged_again_without_being_counted() {
    let folder = harness::TestFolder::new();
    let limits = json!([{"window": "day", "max": 1}]);
    let rules = |run: Value| json!({"version": "1", "default": "allow", "tools": {"run": run}});
    let (caller, none) = (Caller::local(), json!({}));
    let call = JudgedCall { caller: &caller, names: &["run"], arguments: &none };
    let limited = gatekeeper(&folder, rules(json!({ "limits": limits })));
    assert!(!limited.forbids(call) && limited.permit_again(call).is_ok());
    assert!(limited.admit(call).await.is_ok(), "nothing was counted");
    let asking = gatekeeper(&folder, rules(json!({"require_approval": true})));
    assert!(asking.forbids(call), "a URL does not replace an approval");
    assert!(asking.permit_again(call).is_ok(), "an answer to an approved call is given again");
    let denying = gatekeeper(&folder, rules(json!({"deny_if": true})));
    assert_eq!(denying.permit_again(call).unwrap_err().code, POLICY_DENIED);
    assert!(denying.forbids(call));
}

#[tokio::test]
async fn other_policies_are_in_force_with_the_next_call() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, json!({"version": "1", "default": "deny"}));
    assert!(admit(&keeper, "run", json!({})).await.is_err());
    keeper.replace(Book::default());
    assert!(admit(&keeper, "run", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_call_that_cannot_be_counted_does_not_happen() {
    let folder = harness::TestFolder::new();
    std::fs::write(folder.path().join("gate"), "no folder").unwrap();
    let rules = json!({"version": "1", "default": "allow", "tools": {"run": {"limits": [{"window": "day", "max": 9}]}}});
    let keeper = gatekeeper(&folder, rules);
    let error = admit(&keeper, "run", json!({})).await.unwrap_err();
    assert_ne!(error.code, POLICY_DENIED);
    assert!(admit(&keeper, "read_file", json!({})).await.is_ok(), "nothing is counted there");
}

#[tokio::test]
async fn a_caller_whose_policy_is_gone_gets_nothing_of_what_earlier_calls_gave() {
    let folder = harness::TestFolder::new();
    let keeper = Gatekeeper::new(folder.path(), Book::default());
    let other = Caller { label: "key:x".into(), ..Caller::owner(Principal::new("key:1").unwrap()) };
    let none = json!({});
    let call = JudgedCall { caller: &other, names: &["run"], arguments: &none };
    assert_eq!(keeper.permit_again(call).unwrap_err().rule.as_deref(), Some(NO_POLICY));
    assert!(keeper.forbids(call) && !keeper.allows_uncounted(call));
}
