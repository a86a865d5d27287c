//! The broker over servers that answer: what is judged is what is called.

use std::sync::Arc;
use std::time::{Duration, Instant};

use policy::Principal;
use serde_json::json;

use super::tests::Stage;
use crate::played::{self, Changing};
use crate::{Glob, ToolErrorCode, ToolHost, ToolName, ToolRules};

#[tokio::test]
async fn the_tool_that_was_judged_is_called_and_not_one_whose_alias_is_its_name() {
    let folder = harness::TestFolder::new();
    let tools = Changing::default();
    tools.set(&["a-b"]);
    let host = played::host(&folder, &[], {
        let tools = tools.clone();
        move |request| tools.play(request)
    });
    let stage = Stage::over(Arc::clone(&host) as Arc<dyn ToolHost>, &["s"]);
    let mut program = stage.connect();
    let text = |answer: serde_json::Value| answer["ok"]["content"][0]["text"].clone();
    assert_eq!(text(program.call("s.a_b", json!({})).await), "a-b", "the server tells of a change here");
    tools.set(&["a-b", "a_b"]);
    // Lists the tools again.
    assert_eq!(text(program.call("s.a_b", json!({})).await), "a-b");
    assert_eq!(program.refused("s.a_b_2", json!({})).await, "tool_held");
    host.accept("s", None).await.unwrap();
    assert_eq!(text(program.call("s.a_b_2", json!({})).await), "a_b");
    assert_eq!(text(program.call("s.a_b", json!({})).await), "a-b");
    host.close().await;
}

#[tokio::test]
async fn a_call_that_was_judged_by_another_definition_is_held() {
    let folder = harness::TestFolder::new();
    let host = played::host(&folder, &[], |request| played::ordinary(request, &[played::tool("echo")]));
    let owner = Principal::local();
    let standing = host.standing(&owner, "s", "echo").await.unwrap();
    let judged = ToolName::Judged { own: "echo", digest: &standing.digest };
    assert!(host.call(played::call(&owner, judged)).await.is_ok());
    let other = ToolName::Judged { own: "echo", digest: "0123" };
    let held = host.call(played::call(&owner, other)).await.unwrap_err();
    assert_eq!((held.code, held.may_have_run), (ToolErrorCode::ToolHeld, false), "{held}");
    host.close().await;
}

#[tokio::test]
async fn a_listing_that_takes_long_does_not_outlast_the_time_of_a_call() {
    let folder = harness::TestFolder::new();
    let tools = Changing::default();
    tools.set(&["echo"]);
    let listings = std::sync::atomic::AtomicUsize::new(0);
    let host = played::host(&folder, &[], move |request| {
        let is_listing = request["method"] == "tools/list";
        match is_listing && listings.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            true => Vec::new(),
            false => tools.play(request),
        }
    });
    let owner = Principal::local();
    let call = || played::call(&owner, ToolName::Spelled("echo"));
    assert!(host.call(call()).await.is_ok(), "the server tells of a change here");
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(300);
    let error = host.call(crate::ToolCall { deadline, ..call() }).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::TimedOut, false), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    host.close().await;
}

#[tokio::test]
async fn a_rule_that_names_an_alias_denies_the_tool() {
    for named in ["a-b", "a_b"] {
        let folder = harness::TestFolder::new();
        let rules = ToolRules { deny: vec![Glob::new(named).unwrap()], ..ToolRules::default() };
        let host = played::host_with(&folder, &[], rules, |request| {
            played::ordinary(request, &[played::tool("a-b")])
        });
        let stage = Stage::over(Arc::clone(&host) as Arc<dyn ToolHost>, &["s"]);
        let mut program = stage.connect();
        for spelled in ["s.a-b", "s.a_b"] {
            assert_eq!(program.refused(spelled, json!({})).await, "tool_denied", "{named} {spelled}");
        }
        host.close().await;
    }
}
