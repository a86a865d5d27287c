//! Tests of the view: its fields are those of the schema, and its parts are bounded.

use super::*;
use crate::schema;
use engine::DisplayKind;

#[test]
fn the_schema_names_every_field_of_the_result() {
    let value = Value { repr: "ab".to_owned(), json: Some(serde_json::json!(1)), mime: Some(String::new()) };
    let mut execution = Execution {
        stdout: vec![b'x'; 10],
        value: Some(value),
        displays: vec![Display {
            kind: DisplayKind::Html,
            data: Vec::new(),
            text: "words".to_owned(),
            json: Some("{}".to_owned()),
        }],
        compile: Some(BuildReport { cached: true, ms: 1.0 }),
        ..Execution::default()
    };
    execution.enforced.lack(Guarantee::CpuLimited, "a reason");
    let mut result = RunResult::finished(Outcome::Failed, "fake", execution);
    result.clamped = vec![Clamp { limit: String::new(), asked: 1.0, given: 1.0 }];
    result.egress = vec![Reached {
        host: String::new(),
        address: Some(String::new()),
        connections: 1,
        bytes_out: 1,
        bytes_in: 1,
        verdict: String::new(),
    }];
    result.packages = vec![PackageVersion { name: String::new(), version: String::new() }];
    result.install_ms = Some(1.0);
    result.tools = Some(ToolsUse { pending: vec![String::new()], ..ToolsUse::default() });
    let error = RunError {
        line: Some(1),
        column: Some(1),
        cause: Some(String::new()),
        remedy: Some(String::new()),
        retry_after_ms: Some(1),
        rule: Some(String::new()),
        approval_id: engine::ApprovalId::random().ok(),
        ..RunError::default()
    };
    result.error = Some(error);
    let text = || Some(String::new());
    let artifact = ArtifactView {
        path: "",
        uri: text(),
        mime_type: Some(""),
        size_bytes: 1,
        sha256: Some(""),
        download_url: text(),
    };
    let display_uris = vec![(String::new(), Some(String::new()))];
    let known = KnownBy { run_id: "run_1", log_uri: "uri", display_uris };
    let lasting = Lasting {
        sandbox: engine::SandboxId::parse(&format!("sbx_{}", "0".repeat(32))).unwrap(),
        context: ContextName::parse("etl"),
        files: Vec::new(),
    };
    let mut view = RunView::of(&result, 1).known_by(known).in_sandbox(&lasting, vec![artifact]);
    (view.exit_code, view.signal) = (Some(1), Some(1));
    view.isolation = Some(IsolationView { backend: "fake", ..IsolationView::default() });
    view.displays[0].width = Some(1);
    view.displays[0].height = Some(1);
    schema::assert_same_fields(&schema::run_output(), &view);
}

#[test]
fn a_long_value_is_cut_and_told() {
    let long = "x".repeat(50_000);
    let value = Value { repr: format!("'{long}'"), json: Some(long.into()), mime: None };
    let execution = Execution { value: Some(value), ..Execution::default() };
    let result = RunResult::finished(Outcome::Completed, "fake", execution);
    let known = KnownBy { run_id: "run_1", log_uri: "uri", display_uris: Vec::new() };
    let view = serde_json::to_value(RunView::of(&result, 20_000).known_by(known)).unwrap();
    assert!(view["value"]["repr"].as_str().unwrap().len() < 20_100);
    assert_eq!(view["value"].get("json"), None);
    assert_eq!(view["truncated"], serde_json::json!({ "value_bytes": 50_002 }), "the log has no value");
    let whole = serde_json::to_value(RunView::whole(&result, usize::MAX)).unwrap();
    assert_eq!(whole["value"]["repr"].as_str().unwrap().len(), 50_002);
    assert_eq!(whole.get("truncated"), None);
}

#[test]
fn short_data_of_displays_is_in_the_answer_and_all_of_it_in_a_whole_result() {
    let display = |bytes: usize| Display {
        kind: DisplayKind::Html,
        data: Vec::new(),
        text: String::new(),
        json: Some(format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8))),
    };
    let displays = [JSON_BYTES_MAX, JSON_BYTES_MAX + 1, 3000, 3000, 500].map(display).to_vec();
    let execution = Execution { displays, ..Execution::default() };
    let result = RunResult::finished(Outcome::Completed, "fake", execution);
    let has_data = |inline_bytes_max| {
        let view = serde_json::to_value(RunView::of(&result, inline_bytes_max)).unwrap();
        let displays = view["displays"].as_array().unwrap().clone();
        displays.iter().map(|display| display.get("json").is_some()).collect::<Vec<_>>()
    };
    assert_eq!(has_data(20_000), [true, false, true, false, true]);
    assert_eq!(has_data(usize::MAX), [true; 5]);
}

#[test]
fn notes_of_guarantees_are_not_repeated_in_every_result() {
    let mut execution = Execution::default();
    for guarantee in Guarantee::ALL {
        execution.enforced.keep_with_note(guarantee, &[sandbox::Mechanism::Seccomp], "constant");
    }
    execution.enforced.lack(Guarantee::CpuLimited, "a reason");
    let result = RunResult::finished(Outcome::Completed, "fake", execution);
    let view = serde_json::to_value(RunView::of(&result, 1)).unwrap();
    let wanted =
        serde_json::json!({ "backend": "fake", "kernel": "shared", "absent": { "cpu_limited": "a reason" } });
    assert_eq!(view["isolation"], wanted);
}

#[test]
fn a_run_that_did_not_start_says_nothing_of_a_sandbox() {
    let result = RunResult::not_started(Outcome::Refused, "fake", RunError::new("bad", "wrong"));
    let view = serde_json::to_value(RunView::of(&result, 1)).unwrap();
    let names: Vec<_> = view.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["outcome", "error", "clamped", "warnings"]);
}
