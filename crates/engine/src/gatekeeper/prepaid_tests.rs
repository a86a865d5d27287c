//! Tests of calls that are counted together with the runs that they start.

use policy::{Amount, Binding, Book, Caller, QuotaRule, Quotas, Syntax};
use serde_json::{Value, json};

use super::super::{Admitted, Gatekeeper, JudgedCall, QUOTA_EXCEEDED};
use crate::result::RunError;

/// A gatekeeper with two calls a day, two programs a minute and one at a time.
fn gatekeeper(folder: &harness::TestFolder, calls: u64) -> Gatekeeper {
    let limits = json!([{"counter": "calls", "window": "day", "max": calls}]);
    let rules = json!({"version": "1", "default": "allow", "all_tools": {"limits": limits}});
    let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
    let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
    let keeper = Gatekeeper::new(folder.path(), Book::new(&files, vec![binding]).unwrap());
    let mut rule = QuotaRule::new("*");
    rule.set(Amount::ParallelRuns, Some(1));
    rule.set(Amount::RunsPerMinute, Some(1000));
    keeper.replace_quotas(Quotas { rules: vec![rule], ..Quotas::default() });
    keeper
}

async fn admit(keeper: &Gatekeeper) -> Result<Admitted, RunError> {
    let (caller, arguments) = (Caller::local(), Value::Null);
    keeper.admit_run(JudgedCall { caller: &caller, names: &["run"], arguments: &arguments }).await
}

async fn in_use(keeper: &Gatekeeper) -> Vec<u64> {
    keeper.runs_in_use(&Caller::local()).await.unwrap().iter().map(|one| one.used).collect()
}

#[tokio::test]
async fn the_run_of_an_admitted_call_is_counted_once() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, 10);
    let admitted = admit(&keeper).await.unwrap();
    assert_eq!(in_use(&keeper).await, [1, 1]);
    let lease = keeper.lease_run(&Caller::local()).await.unwrap();
    assert_eq!(in_use(&keeper).await, [1, 1], "the same place");
    admitted.settle(None).await;
    assert_eq!(in_use(&keeper).await, [1, 1], "the run goes on after its call");
    assert_eq!(admit(&keeper).await.unwrap_err().code, QUOTA_EXCEEDED, "one at a time");
    lease.end(0, false);
    assert_eq!(in_use(&keeper).await, [0, 1]);
}

#[tokio::test]
async fn a_call_that_starts_no_run_takes_no_place() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, 10);
    admit(&keeper).await.unwrap().settle(None).await;
    assert_eq!(in_use(&keeper).await, [0, 0]);
    drop(admit(&keeper).await.unwrap());
    assert_eq!(in_use(&keeper).await, [0, 0], "a caller that is gone");
    let lease = keeper.lease_run(&Caller::local()).await.unwrap();
    assert_eq!(in_use(&keeper).await, [1, 1], "a run without a call is counted by itself");
    lease.end(0, false);
}

#[tokio::test]
async fn a_call_beyond_its_limit_takes_no_place() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, 1);
    drop(admit(&keeper).await.unwrap());
    assert_eq!(admit(&keeper).await.unwrap_err().code, super::super::POLICY_DENIED);
    assert_eq!(in_use(&keeper).await, [0, 0]);
}

#[tokio::test]
async fn a_call_without_a_place_is_not_counted_by_its_limit() {
    let folder = harness::TestFolder::new();
    let keeper = gatekeeper(&folder, 2);
    let first = admit(&keeper).await.unwrap();
    for _ in 0..3 {
        assert_eq!(admit(&keeper).await.unwrap_err().code, QUOTA_EXCEEDED);
    }
    drop(first);
    drop(admit(&keeper).await.unwrap());
    assert_eq!(admit(&keeper).await.unwrap_err().code, super::super::POLICY_DENIED, "the third one");
}
