//! The writer and the readers together, over real files.

use std::fs;
use std::path::Path;

use policy::{Book, Caller};
use sandbox::Outcome;
use serde_json::json;

use super::*;
use crate::gatekeeper::{Gatekeeper, JudgedCall};
use crate::result::RunError;

const SECRET: &str = "hunter2-the-value";

fn begun(state_dir: &Path, config: AuditConfig) -> Gatekeeper {
    let keeper = Gatekeeper::new(state_dir, Book::default());
    keeper.audit().begin("test", config).unwrap();
    // The first entry begins the chain, whichever thread writes it.
    keeper.audit().note(Event::new("test_began"));
    keeper
}

/// Repeats what does nothing while the thread of a keeper does the same.
#[track_caller]
fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

async fn admit(keeper: &Gatekeeper) -> Result<crate::Admitted, RunError> {
    let arguments = json!({ "language": "python", "code": SECRET });
    keeper.admit(JudgedCall { caller: &Caller::local(), names: &["run"], arguments: &arguments }).await
}

fn trusted(state_dir: &Path) -> KeyRing {
    KeyRing::new(public_keys(state_dir).unwrap())
}

fn verified(state_dir: &Path, keys: KeyRing) -> AuditReport {
    let folder = folder(state_dir);
    verify(VerifyRequest { folder: &folder, keys, receipts: Vec::new(), checkpoints: Vec::new() }).unwrap()
}

fn kinds(state_dir: &Path) -> Vec<String> {
    tail(&folder(state_dir), 10_000).unwrap().into_iter().map(|entry| entry.kind).collect()
}

#[tokio::test]
async fn a_decision_is_written_before_the_call_is_admitted_and_its_outcome_after() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    let admitted = admit(&keeper).await.unwrap();
    assert_eq!(kinds(state.path()), ["started", "test_began", "decision"], "before the effect");
    assert_eq!(admitted.decision().unwrap().seq, 3);
    admitted.settle(Some(Outcome::Completed)).await;
    let entries = tail(&folder(state.path()), 10).unwrap();
    let outcome = entries.last().unwrap();
    assert_eq!(outcome.data(), json!({ "decision": 3, "outcome": "completed" }));
    // A caller that is gone leaves a call whose outcome nobody told.
    drop(admit(&keeper).await.unwrap());
    assert_eq!(tail(&folder(state.path()), 1).unwrap()[0].data()["outcome"], "unknown");
    keeper.audit().end();
    assert_eq!(admit(&keeper).await.unwrap_err().code, AUDIT_UNAVAILABLE, "nothing happens unrecorded");
    drop(keeper);
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
}

#[tokio::test]
async fn arguments_are_in_the_audit_as_names_and_a_keyed_digest() {
    let (state, other) = (harness::TestFolder::new(), harness::TestFolder::new());
    let digest = async |state: &Path| {
        let keeper = begun(state, AuditConfig::default());
        drop(admit(&keeper).await.unwrap());
        drop(admit(&keeper).await.unwrap());
        let entries = tail(&folder(state), 100).unwrap();
        let lines: String = entries.iter().map(|entry| entry.line.as_str()).collect();
        assert!(!lines.contains(SECRET));
        let decisions: Vec<_> = entries.iter().filter(|entry| entry.kind == "decision").collect();
        assert_eq!(decisions[0].data()["arguments"], json!(["code", "language"]));
        assert_eq!(
            decisions[0].data()["digest"],
            decisions[1].data()["digest"],
            "equal calls are recognised"
        );
        decisions[0].data()["digest"].clone()
    };
    assert_ne!(digest(state.path()).await, digest(other.path()).await, "each server has its own key");
}

/// To see it fail, let `Gatekeeper::enter` admit a call whose entry was not written.
#[tokio::test]
async fn a_full_disk_stops_calls_and_the_reserve_records_the_refusals() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    let before = admit(&keeper).await.unwrap();
    keeper.audit().fill_disk(Some(100));
    let error = admit(&keeper).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), (AUDIT_UNAVAILABLE, true), "{error:?}");
    assert!(error.remedy.is_some() && error.retry_after_ms.is_some());
    // What was allowed before still has room for its outcome.
    before.settle(Some(Outcome::Failed)).await;
    let entries = tail(&folder(state.path()), 2).unwrap();
    assert_eq!(entries[0].data()["code"], AUDIT_UNAVAILABLE);
    assert_eq!(entries[1].data()["outcome"], "failed");
    // Calls pass again when there is room for the reserve.
    keeper.audit().fill_disk(None);
    let patience = Instant::now();
    let admitted = loop {
        match admit(&keeper).await {
            Ok(admitted) => break admitted,
            Err(_) => assert!(patience.elapsed() < Duration::from_secs(30)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    admitted.settle(None).await;
    drop(keeper);
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Whole, "the halves of lines are gone: {report:#?}");
}

#[tokio::test]
async fn entries_beyond_the_reserve_wait_and_those_beyond_the_backlog_are_counted() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    admit(&keeper).await.unwrap().settle(None).await;
    keeper.audit().fill_disk(Some(0));
    // The reserve is used up as well.
    keeper.audit().note(Event::new("first"));
    keeper.audit().fill_disk(Some(0));
    for _ in 0..1500 {
        keeper.audit().note(Event::new("more"));
    }
    keeper.audit().fill_disk(None);
    drop(keeper);
    let kinds = kinds(state.path());
    assert_eq!(kinds.iter().filter(|kind| *kind == "more").count(), 1024);
    assert!(kinds.contains(&"lost".to_owned()), "{kinds:?}");
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert_eq!(report.chains[0].gaps, [Gap::Lost { entries: 476 }]);
}

#[test]
fn an_audit_that_cannot_be_begun_stops_calls() {
    let state = harness::TestFolder::new();
    fs::write(state.path().join("audit"), "a file where the folder belongs").unwrap();
    let keeper = Gatekeeper::new(state.path(), Book::default());
    keeper.audit().begin("test", AuditConfig::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(admit(&keeper)).unwrap_err().code, AUDIT_UNAVAILABLE);
}

#[test]
fn a_rotated_key_is_followed_and_the_old_key_still_verifies() {
    let state = harness::TestFolder::new();
    let old = trusted(state.path());
    let keeper = begun(state.path(), AuditConfig::default());
    keeper.audit().checkpoint().unwrap();
    let new = rotate_key(state.path()).unwrap();
    keeper.audit().note(Event::new("after"));
    keeper.audit().checkpoint().unwrap();
    drop(keeper);
    let kinds = kinds(state.path());
    assert!(kinds.contains(&"key_rotated".to_owned()), "{kinds:?}");
    // A later chain is signed by the new key alone.
    drop(begun(state.path(), AuditConfig::default()));
    assert_eq!(verified(state.path(), old).verdict, Verdict::Whole);
    let only_new = verified(state.path(), KeyRing::new([new]));
    assert_eq!(only_new.verdict, Verdict::Broken, "the new key does not vouch for what the old one signed");
    let stranger = harness::TestFolder::new();
    assert_eq!(verified(state.path(), trusted(stranger.path())).verdict, Verdict::Broken);
}

#[test]
fn retention_removes_whole_segments_and_the_rest_is_verified() {
    let state = harness::TestFolder::new();
    let small = AuditConfig { segment_bytes_max: 4096, ..AuditConfig::default() };
    let keeper = begun(state.path(), small);
    for number in 0..200 {
        keeper.audit().note(Event::new("filler").with("number", number));
    }
    drop(keeper);
    let audit = folder(state.path());
    let chain = &files::chains(&audit).unwrap()[0];
    let before = chain.segments().unwrap();
    assert!(before.len() > 5, "{before:?}");
    let keep = AuditRetention { bytes_max: 10_000, ..AuditRetention::default() };
    until("segments are removed", || {
        retention::retire(&audit, &keys::KeyFolder::new(&audit), keep).unwrap().is_some()
    });
    let after = chain.segments().unwrap();
    assert!(after.len() < before.len() && after.last() == before.last(), "{after:?}");
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
    assert!(matches!(report.chains[0].gaps[..], [Gap::Retired { .. }]));
    // Without the statement the same is a gap that nobody explains.
    fs::remove_file(chain.path.join(files::REMOVED)).unwrap();
    assert_eq!(verified(state.path(), trusted(state.path())).verdict, Verdict::Incomplete);
}

#[test]
fn a_reserve_that_a_killed_process_left_is_removed() {
    let state = harness::TestFolder::new();
    drop(begun(state.path(), AuditConfig::default()));
    let audit = folder(state.path());
    let left = files::chains(&audit).unwrap()[0].path.join(files::RESERVE);
    assert!(!left.exists(), "a process that ends removes it");
    fs::write(&left, [0; 100]).unwrap();
    let keeper = begun(state.path(), AuditConfig::default());
    until("the reserve is removed", || {
        retention::retire(&audit, &keys::KeyFolder::new(&audit), AuditRetention::default()).unwrap();
        !left.exists()
    });
    let own = files::chains(&audit).unwrap()[1].path.join(files::RESERVE);
    assert!(own.exists(), "and that of a process that lives stays");
    drop(keeper);
}

#[test]
fn a_chain_that_is_too_old_goes_as_a_whole_and_the_next_one_does_not_miss_it() {
    let state = harness::TestFolder::new();
    drop(begun(state.path(), AuditConfig::default()));
    std::thread::sleep(Duration::from_millis(5));
    let keeper = begun(state.path(), AuditConfig::default());
    let audit = folder(state.path());
    let keep = AuditRetention { bytes_max: 0, ..AuditRetention::default() };
    retention::retire(&audit, &keys::KeyFolder::new(&audit), keep).unwrap();
    assert_eq!(files::chains(&audit).unwrap().len(), 1, "the chain that is written stays");
    drop(keeper);
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
    fs::remove_file(audit.join(files::REMOVED)).unwrap();
    let report = verified(state.path(), trusted(state.path()));
    assert!(matches!(report.chains[0].gaps[..], [Gap::NoPrevious { .. }]), "{report:#?}");
}

/// The chain alone would accept the cut: it ends with a checkpoint, and then the lock says that nobody writes it.
#[test]
fn a_tail_that_was_cut_off_is_found_by_the_next_chain() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    keeper.audit().checkpoint().unwrap();
    keeper.audit().note(Event::new("inconvenient"));
    drop(keeper);
    std::thread::sleep(Duration::from_millis(5));
    drop(begun(state.path(), AuditConfig::default()));
    let chain = &files::chains(&folder(state.path())).unwrap()[0];
    let path = chain.segment(1);
    let text = fs::read_to_string(&path).unwrap();
    let cut: Vec<&str> = text.lines().take_while(|line| !line.contains("inconvenient")).collect();
    fs::write(&path, cut.join("\n") + "\n").unwrap();
    let report = verified(state.path(), trusted(state.path()));
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert!(report.chains[0].gaps.iter().any(|gap| matches!(gap, Gap::Cut { .. })), "{report:#?}");
}

#[test]
fn a_checkpoint_that_was_kept_elsewhere_finds_a_chain_that_was_rewritten() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    keeper.audit().checkpoint().unwrap();
    let kept = newest_checkpoint(&folder(state.path())).unwrap().unwrap();
    drop(keeper);
    let keys = trusted(state.path());
    let audit = folder(state.path());
    let request = |note: String| VerifyRequest {
        folder: &audit,
        keys: keys.clone(),
        receipts: Vec::new(),
        checkpoints: vec![note],
    };
    assert_eq!(verify(request(kept.clone())).unwrap().verdict, Verdict::Whole);
    let forged = kept.replace("\n2\n", "\n1\n");
    assert_eq!(verify(request(forged)).unwrap().verdict, Verdict::Broken);
    // The server's own user writes the chain anew, with the same key.
    let chain = &files::chains(&audit).unwrap()[0];
    fs::write(chain.segment(1), "").unwrap();
    assert_eq!(verify(request(kept)).unwrap().verdict, Verdict::Incomplete);
}

#[tokio::test]
async fn a_refused_call_has_a_receipt_of_its_entry() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    let stranger =
        Caller { label: "key:x".into(), ..Caller::owner(policy::Principal::new("key:1").unwrap()) };
    let call = JudgedCall { caller: &stranger, names: &["run"], arguments: &json!({}) };
    keeper.admit(call).await.unwrap_err();
    let entry = tail(&folder(state.path()), 1).unwrap().remove(0);
    assert_eq!(
        (entry.data()["verdict"].clone(), entry.data()["code"].clone()),
        (json!("denied"), json!("policy_denied"))
    );
    let receipt = entry_receipt(state.path(), &entry.instance, entry.seq).unwrap().unwrap();
    let report = verify_receipt(&receipt, &trusted(state.path()));
    assert_eq!(report.receipt.unwrap().seq, entry.seq);
    assert_eq!(entry_receipt(state.path(), &entry.instance, 99).unwrap(), None);
}

#[test]
fn events_of_ocsf_have_the_fields_that_the_class_requires() {
    let state = harness::TestFolder::new();
    let keeper = begun(state.path(), AuditConfig::default());
    keeper.audit().note(Event::new("key_created").by(&Caller::local()).with("key", "k1"));
    drop(keeper);
    let mut written = Vec::new();
    export(&folder(state.path()), 0, ExportFormat::Ocsf, &mut written).unwrap();
    let text = String::from_utf8(written).unwrap();
    assert!(text.lines().count() >= 4);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&event["class_uid"], &event["category_uid"]), (&json!(6003), &json!(6)));
        let activity = event["activity_id"].as_u64().unwrap();
        assert_eq!(event["type_uid"], 600_300 + activity);
        for pointer in
            ["/metadata/version", "/metadata/product/vendor_name", "/actor/user/uid", "/api/operation"]
        {
            assert!(event.pointer(pointer).is_some_and(Value::is_string), "{pointer} {event}");
        }
        assert!(event["time"].is_u64() && event["severity_id"].is_u64() && event["src_endpoint"].is_object());
    }
}
