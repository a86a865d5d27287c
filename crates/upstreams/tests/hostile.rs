//! Servers that break the protocol, flood, lie or change.

use std::time::{Duration, Instant};

use upstreams::{Dialect, Template, ToolAccess, ToolErrorCode, ToolHost, Transport, Viewer};

use crate::stage::{Folder, call, call_within, host, owner, query, spec, text};

/// The message of the error of the first use.
async fn unusable(mode: &str) -> String {
    let folder = Folder::new();
    let host = host(&folder, spec(mode, &folder));
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert!(!error.may_have_run);
    host.close().await;
    error.message
}

pub(crate) async fn endless_pages_are_refused() {
    assert!(unusable("pages").await.contains("more than 100 pages"));
}

pub(crate) async fn a_list_that_repeats_itself_is_refused() {
    assert!(unusable("loop").await.contains("repeats itself"));
}

pub(crate) async fn more_tools_than_the_maximum_are_refused() {
    assert!(unusable("many").await.contains("more than 10000 tools"));
}

pub(crate) async fn a_schema_of_a_hundred_megabytes_is_refused() {
    let message = unusable("schema").await;
    assert!(message.contains("larger than") || message.contains("too long"), "{message}");
}

pub(crate) async fn definitions_beyond_the_bytes_of_a_listing_are_refused() {
    assert!(unusable("bytes").await.contains("definitions are larger than"));
}

pub(crate) async fn a_definition_that_is_nested_too_deeply_is_refused() {
    let message = unusable("deep-schema").await;
    assert!(
        message.contains("nested") || message.contains("no JSON") || message.contains("answer"),
        "{message}"
    );
}

pub(crate) async fn a_list_that_is_none_is_refused() {
    assert!(unusable("no-list").await.contains("no list"));
}

pub(crate) async fn odd_definitions_are_left_out_and_the_rest_works() {
    let folder = Folder::new();
    let host = host(&folder, spec("odd", &folder));
    assert_eq!(text(&call(&host, "a_b", "by alias").await.unwrap()), "by alias");
    let found = host.find(query("", 10)).await;
    let names: Vec<&str> = found.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["s.a_b", "s.tab_"]);
    assert_eq!(found.tools[1].access, ToolAccess::Held);
    host.close().await;
}

pub(crate) async fn a_line_that_is_too_long_fails_its_call_alone() {
    let folder = Folder::new();
    let host = host(&folder, spec("long-line", &folder));
    for _ in 0..2 {
        let error = call(&host, "echo", "x").await.unwrap_err();
        assert_eq!((error.code, error.may_have_run), (ToolErrorCode::AnswerTooLarge, true), "{error}");
    }
    host.close().await;
}

pub(crate) async fn an_answer_beyond_the_callers_bound_is_refused() {
    let folder = Folder::new();
    let host = host(&folder, spec("large", &folder));
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::AnswerTooLarge);
    host.close().await;
}

pub(crate) async fn an_answer_that_is_nested_too_deeply_fails_its_call_alone() {
    let folder = Folder::new();
    let host = host(&folder, spec("deep", &folder));
    for _ in 0..2 {
        let error = call(&host, "echo", "x").await.unwrap_err();
        assert_eq!((error.code, error.may_have_run), (ToolErrorCode::ServerError, true), "{error}");
    }
    host.close().await;
}

pub(crate) async fn wrong_numbers_and_noise_are_passed_over() {
    let folder = Folder::new();
    let host = host(&folder, spec("wrong-id", &folder));
    assert_eq!(text(&call(&host, "echo", "mine").await.unwrap()), "mine");
    host.close().await;
}

pub(crate) async fn a_late_answer_does_not_reach_another_call() {
    let folder = Folder::new();
    let host = host(&folder, spec("late", &folder));
    call(&host, "echo", "start it").await.unwrap();
    let error = call_within(&host, "slow", "late", Duration::from_millis(200)).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::TimedOut, true));
    assert_eq!(text(&call(&host, "echo", "next").await.unwrap()), "next");
    host.close().await;
}

pub(crate) async fn a_crash_in_mid_call_is_told_and_the_call_is_not_repeated() {
    let folder = Folder::new();
    let host = host(&folder, spec("crash", &folder));
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::ServerEnded, true), "{error}");
    assert_eq!(folder.count(), 1);
    // The next use starts it again, after a short pause.
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert_eq!((error.code, folder.count()), (ToolErrorCode::ServerEnded, 2), "{error}");
    host.close().await;
}

pub(crate) async fn a_silent_server_times_out_and_was_called_once() {
    let folder = Folder::new();
    let host = host(&folder, spec("silent", &folder));
    host.list("s", owner(), Duration::from_secs(20)).await.unwrap();
    let error = call_within(&host, "echo", "x", Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::TimedOut, true));
    host.close().await;
    assert_eq!(folder.count(), 1);
}

pub(crate) async fn a_changed_definition_is_held_until_accepted() {
    let folder = Folder::new();
    let first = host(&folder, spec("changed", &folder));
    assert_eq!(text(&call(&first, "echo", "one").await.unwrap()), "one");
    first.close().await;
    // Another start, another definition.
    let second = host(&folder, spec("changed", &folder));
    let error = call(&second, "echo", "two").await.unwrap_err();
    assert_eq!((error.code, error.may_have_run), (ToolErrorCode::ToolHeld, false), "{error}");
    assert_eq!(text(&call(&second, "same", "still").await.unwrap()), "still");
    let held = second.held("s").unwrap();
    assert_eq!((held.len(), held[0].tool.as_str()), (1, "echo"));
    assert_eq!(held[0].before.as_ref().unwrap()["description"], "version 1");
    assert_eq!(held[0].now["description"], "version 2");
    assert_eq!(second.accept("s", None).await.unwrap(), ["echo"]);
    assert_eq!(text(&call(&second, "echo", "three").await.unwrap()), "three");
    second.close().await;
}

pub(crate) async fn a_definition_that_changes_while_the_server_runs_is_held_at_once() {
    let folder = Folder::new();
    let host = host(&folder, spec("live-change", &folder));
    call(&host, "echo", "x").await.unwrap();
    let error = call(&host, "echo", "x").await.unwrap_err();
    assert_eq!(error.code, ToolErrorCode::ToolHeld, "{error}");
    host.close().await;
}

pub(crate) async fn a_change_whose_listing_failed_is_listed_again() {
    let folder = Folder::new();
    let host = host(&folder, spec("change-unlisted", &folder));
    assert_eq!(text(&call(&host, "echo", "x").await.unwrap()), "x");
    let begun = Instant::now();
    // The notification arrives around the answer of the first call.
    let failed = loop {
        match call(&host, "echo", "x").await {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(10), "no change was announced"),
            Err(error) => break error,
        }
    };
    assert!(failed.message.contains("try again"), "{failed}");
    assert_eq!(call(&host, "echo", "x").await.unwrap_err().code, ToolErrorCode::ToolHeld);
    host.close().await;
}

pub(crate) async fn a_poisoned_description_is_held_and_not_shown() {
    let folder = Folder::new();
    let host = host(&folder, spec("poisoned", &folder));
    let found = host.find(query("s.echo", 5)).await;
    assert_eq!(
        (found.total, found.tools[0].access, found.tools[0].about.as_str()),
        (1, ToolAccess::Held, "")
    );
    assert_eq!(call(&host, "echo", "x").await.unwrap_err().code, ToolErrorCode::ToolHeld);
    assert_eq!(text(&call(&host, "fine", "x").await.unwrap()), "x");
    let definition = host.describe(owner(), "s", "echo").await.unwrap();
    assert!(!format!("{definition:?}").contains("ssh/id"), "{definition:?}");
    let stubs = host.stubs(owner(), "s", Dialect::Python).await.unwrap();
    assert!(!stubs.contains("ssh/id"), "{stubs}");
    host.close().await;
}

pub(crate) async fn requests_of_a_server_are_refused_and_pings_answered() {
    let folder = Folder::new();
    let host = host(&folder, spec("asks", &folder));
    let replies = text(&call(&host, "echo", "").await.unwrap());
    let replies: serde_json::Value = serde_json::from_str(&replies).unwrap();
    assert_eq!((&replies[0]["id"], &replies[0]["error"]["code"]), (&77.into(), &(-32601).into()));
    assert_eq!((&replies[1]["id"], &replies[1]["result"]), (&"p".into(), &serde_json::json!({})));
    host.close().await;
}

pub(crate) async fn a_credential_is_taken_out_of_results() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("token"), "tok-0123456789\n").unwrap();
    let mut spec = spec("secret", &folder);
    let Transport::Stdio(stdio) = &mut spec.transport else { panic!() };
    let template = format!("${{file:{}}}", folder.0.join("token").display());
    stdio.env.insert("TOKEN".to_owned(), Template::parse(&template).unwrap());
    let host = host(&folder, spec);
    assert_eq!(text(&call(&host, "echo", "").await.unwrap()), "[redacted]");
    let refused = call(&host, "echo", "refuse").await.unwrap_err();
    assert!(refused.message.contains("the token [redacted] has expired"), "{refused}");
    // What a server said before it ended is told, and so is why it cannot be used now.
    let ended = call(&host, "echo", "die").await.unwrap_err();
    assert!(!ended.message.contains("tok-0123456789"), "{ended}");
    for info in host.servers(Viewer::of(owner())) {
        assert!(!format!("{:?}", info.state).contains("tok-0123456789"), "{info:?}");
    }
    host.close().await;
}

pub(crate) async fn palisade_is_not_its_own_upstream() {
    assert!(unusable("self").await.contains("Palisade itself"));
}
