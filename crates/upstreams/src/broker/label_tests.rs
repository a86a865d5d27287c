//! Labels that must not get lost: written before the program gets the result, and for everything that a result may say.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::Caller;
use rustix::fs::FlockOperation;
use serde_json::json;

use super::fake::{BROKEN_TOOL, LABEL, REFUSED_URI};
use super::labels::{LOCK, LabelStore};
use super::shelf::DOCUMENTS_MAX;
use super::tests::Stage;

const SANDBOX: &str = "sbx_1";

fn labels() -> BTreeSet<String> {
    BTreeSet::from([LABEL.to_owned()])
}

/// The labels of the sandbox on the disk, as the next server finds them.
fn kept(stage: &Stage) -> BTreeSet<String> {
    LabelStore::new(stage.folder.path()).open(SANDBOX).unwrap().all()
}

#[tokio::test]
async fn what_a_run_has_read_bars_servers_that_refuse_it() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert!(program.call("sink.echo", json!({})).await.get("ok").is_some());
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    assert_eq!(program.refused("sink.echo", json!({})).await, "label_refused");
    assert!(program.call("x.echo", json!({})).await.get("ok").is_some(), "others are not barred");
    let mut other = stage.again(Caller::local(), None).connect();
    assert!(other.call("sink.echo", json!({})).await.get("ok").is_some(), "another run has read nothing");
}

#[tokio::test]
async fn a_read_resource_carries_labels_too() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let answer = program.ask(json!({"id": 1, "read": ["mail", "docs://index"]})).await;
    assert_eq!(answer["ok"]["contents"][0]["text"], "read docs://index");
    assert_eq!(program.refused("sink.echo", json!({})).await, "label_refused");
}

#[tokio::test]
async fn memory_does_not_carry_what_was_read_past_the_labels() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    program.ask(json!({"id": 1, "memory": {"set": "k", "value": 12}})).await;
    let next = stage.again(Caller::local(), None);
    let mut program = next.connect();
    assert_eq!(program.ask(json!({"id": 1, "memory": {"get": "k"}})).await["ok"]["value"], 12);
    assert_eq!(program.refused("sink.echo", json!({})).await, "label_refused");
}

#[tokio::test]
async fn a_result_whose_labels_cannot_be_written_is_never_given() {
    let stage = Stage::in_sandbox(Some(SANDBOX));
    let folder = stage.folder.path().join("labels");
    std::fs::write(&folder, "in the way").unwrap();
    let mut program = stage.connect();
    for _ in 0..2 {
        let answer = program.call("mail.echo", json!({})).await;
        assert_eq!(answer["error"]["code"], "labels_unavailable", "{answer}");
        assert_eq!(answer["error"]["may_have_run"], true, "the server has answered");
    }
    std::fs::remove_file(&folder).unwrap();
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    assert_eq!(kept(&stage), labels());
}

#[tokio::test]
async fn a_result_waits_for_labels_that_another_call_writes() {
    let stage = Stage::in_sandbox(Some(SANDBOX));
    let folder = stage.folder.path().join("labels");
    std::fs::create_dir(&folder).unwrap();
    // As another process that changes labels.
    let lock = std::fs::File::create(folder.join(LOCK)).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut first = std::pin::pin!(stage.session.mark(labels()));
    let mut second = std::pin::pin!(stage.session.mark(labels()));
    let moment = Duration::from_millis(200);
    assert!(tokio::time::timeout(moment, &mut first).await.is_err(), "it is not written yet");
    assert!(tokio::time::timeout(moment, &mut second).await.is_err(), "nor for the second call");
    assert!(kept(&stage).is_empty());
    drop(lock);
    tokio::try_join!(first, second).unwrap();
    assert_eq!(kept(&stage), labels());
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_has_the_labels_of_the_run_before_it() {
    let stage = Stage::in_sandbox(Some(SANDBOX));
    // Opened before it has its turn, while the other run has read nothing.
    let next = stage.again(Caller::local(), Some(SANDBOX));
    assert!(stage.connect().call("mail.echo", json!({})).await.get("ok").is_some());
    assert_eq!(next.connect().refused("sink.echo", json!({})).await, "label_refused");
}

#[tokio::test]
async fn lists_of_what_was_saved_carry_the_labels_of_what_they_name() {
    let stage = Stage::new();
    let mut program = stage.connect();
    assert!(program.call("mail.echo", json!({})).await.get("ok").is_some());
    let saved = json!({"name": "f", "about": "what was read", "language": "python", "source": ""});
    program.ask(json!({"id": 1, "save": saved})).await;
    program.ask(json!({"id": 1, "memory": {"set": "what was read", "value": 1}})).await;
    let lists = [
        json!({"id": 1, "saved": null}),
        json!({"id": 1, "memory": null}),
        json!({"id": 1, "memory": {"delete": "what was read"}}),
    ];
    for asked in lists {
        let mut next = stage.again(Caller::local(), None).connect();
        assert!(next.call("sink.echo", json!({})).await.get("ok").is_some());
        let told = next.ask(asked.clone()).await;
        assert!(told["ok"] == true || told.to_string().contains("what was read"), "{told}");
        assert_eq!(next.refused("sink.echo", json!({})).await, "label_refused", "{asked}");
    }
}

#[tokio::test]
async fn errors_in_the_words_of_a_server_carry_its_labels() {
    let requests = [
        json!({"id": 1, "call": "mail.echo", "args": {"refuse": "what was read"}}),
        json!({"id": 1, "read": ["mail", REFUSED_URI]}),
        json!({"id": 1, "call": ["mail", BROKEN_TOOL]}),
        json!({"id": 1, "describe": format!("mail.{BROKEN_TOOL}")}),
    ];
    for asked in requests {
        let stage = Stage::new();
        let mut program = stage.connect();
        assert!(program.ask(asked.clone()).await["error"]["code"].is_string());
        assert_eq!(program.refused("sink.echo", json!({})).await, "label_refused", "{asked}");
    }
    let stage = Stage::new();
    let mut program = stage.connect();
    assert_eq!(program.refused("mail.nothing", json!({})).await, "unknown_tool");
    assert!(program.call("sink.echo", json!({})).await.get("ok").is_some(), "no server said anything");
}

#[tokio::test]
async fn what_marked_runs_removed_and_put_marks_runs_that_notice_it() {
    let requests = [
        json!({"id": 1, "memory": {"get": "gone"}}),
        json!({"id": 1, "memory": {"delete": "gone"}}),
        json!({"id": 1, "memory": null}),
    ];
    for asked in &requests {
        let stage = Stage::new();
        stage.connect().ask(json!({"id": 1, "memory": {"set": "gone", "value": 1}})).await;
        let mut marked = stage.connect();
        assert!(marked.call("mail.echo", json!({})).await.get("ok").is_some());
        assert_eq!(marked.ask(json!({"id": 1, "memory": {"delete": "gone"}})).await["ok"], true);
        let mut next = stage.again(Caller::local(), None).connect();
        assert!(next.call("sink.echo", json!({})).await.get("ok").is_some());
        assert!(next.ask(asked.clone()).await.get("ok").is_some());
        assert_eq!(next.refused("sink.echo", json!({})).await, "label_refused", "{asked}");
    }
    // Without a marked run, none of these says anything.
    let stage = Stage::new();
    let mut program = stage.connect();
    program.ask(json!({"id": 1, "memory": {"set": "gone", "value": 1}})).await;
    for asked in requests {
        assert!(program.ask(asked).await.get("ok").is_some());
    }
    assert!(program.call("sink.echo", json!({})).await.get("ok").is_some());
}

#[tokio::test]
async fn a_shelf_that_marked_runs_have_filled_marks_runs_that_find_no_room() {
    let stage = Stage::new();
    let mut marked = stage.connect();
    assert!(marked.call("mail.echo", json!({})).await.get("ok").is_some());
    for number in 0..DOCUMENTS_MAX {
        marked.ask(json!({"id": 1, "memory": {"set": format!("k{number}"), "value": 1}})).await;
    }
    let mut next = stage.again(Caller::local(), None).connect();
    let full = next.ask(json!({"id": 1, "memory": {"set": "one more", "value": 1}})).await;
    assert_eq!(full["error"]["code"], "full", "{full}");
    assert_eq!(next.refused("sink.echo", json!({})).await, "label_refused");
}

#[tokio::test]
async fn marked_runs_and_servers_with_labels_teach_no_shapes() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for (tool, learned) in [("x.echo", 1), ("mail.echo", 1), ("x.echo", 1)] {
        assert!(program.call(tool, json!({})).await.get("ok").is_some());
        assert_eq!(stage.host.learned(), learned, "{tool}");
    }
    stage.again(Caller::local(), None).connect().call("x.echo", json!({})).await;
    assert_eq!(stage.host.learned(), 2);
}
