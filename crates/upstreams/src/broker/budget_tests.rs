//! Budgets of requests that are no calls.

use std::time::{Duration, Instant};

use serde_json::json;

use super::tests::Stage;
use super::{DISK_REQUESTS_MAX, IN_FLIGHT_OF_SERVER_MAX, REQUESTS_PER_MINUTE_MAX, RUN_BYTES_MAX};

#[tokio::test]
async fn a_principal_beyond_its_requests_of_a_minute_gets_few_answers_and_can_still_cancel() {
    let stage = Stage::new();
    let mut program = stage.connect();
    program.send(&json!({"id": "slow", "call": "x.slow"})).await;
    while stage.host.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let requests = &stage.session.shared.requests;
    while requests.count(&stage.session.caller.principal, Instant::now()).is_ok() {}
    let begun = Instant::now();
    for asked in [
        json!({"id": 1, "find": ""}),
        json!({"id": 1, "describe": "x.echo"}),
        json!({"id": 1, "servers": true}),
        json!({"id": 1, "saved": null}),
        json!({"id": 1, "memory": null}),
        json!({"id": 1, "call": "x.echo"}),
        json!({"id": 1, "what": "nonsense"}),
    ] {
        let answer = program.ask(asked).await;
        assert_eq!(answer["error"]["code"], "rate_limited", "{answer}");
        assert!(answer["error"]["retry_after_ms"].as_u64().unwrap() <= 60_000, "{answer}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(7 * 20), "the link does not rest");
    assert_eq!(stage.host.calls(), ["x.slow"]);
    program.send(&json!({"id": 2, "cancel": "slow"})).await;
    let answers = [program.next().await.unwrap(), program.next().await.unwrap()];
    assert!(answers.iter().any(|answer| answer["error"]["code"] == "cancelled"), "{answers:?}");
}

#[tokio::test]
async fn every_request_counts_for_its_principal() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for number in 0..10 {
        program.ask(json!({"id": number, "servers": true})).await;
    }
    let requests = &stage.session.shared.requests;
    let left = std::iter::repeat_with(|| requests.count(&stage.session.caller.principal, Instant::now()));
    assert_eq!(left.take_while(Result::is_ok).count(), REQUESTS_PER_MINUTE_MAX as usize - 10);
}

#[tokio::test]
async fn few_requests_of_a_run_use_the_disk_at_the_same_time() {
    let stage = Stage::new();
    let mut program = stage.connect();
    let places = stage.session.disk.acquire_many(DISK_REQUESTS_MAX as u32).await.unwrap();
    for number in 0..20 {
        program.send(&json!({"id": number, "memory": {"get": "k"}})).await;
    }
    // Other requests go on.
    assert_eq!(program.ask(json!({"id": "s", "servers": true})).await["id"], "s");
    assert!(tokio::time::timeout(Duration::from_millis(200), program.next()).await.is_err());
    drop(places);
    for _ in 0..20 {
        assert_eq!(program.next().await.unwrap()["ok"], json!({}));
    }
}

#[tokio::test]
async fn a_result_beyond_the_bytes_of_a_run_says_that_its_call_had_its_effect() {
    let stage = Stage::new();
    let mut program = stage.connect();
    stage.session.count_bytes(RUN_BYTES_MAX as usize - 60).unwrap();
    for id in 0..2 {
        program.send(&json!({"id": id, "call": "x.slow", "args": {"ms": 200}})).await;
    }
    let answers = [program.next().await.unwrap(), program.next().await.unwrap()];
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.get("error")).collect();
    assert_eq!(refused.len(), 1, "{answers:?}");
    assert_eq!((&refused[0]["code"], &refused[0]["may_have_run"]), (&json!("bytes_exhausted"), &json!(true)));
    assert_eq!((stage.host.calls().len(), stage.used().denied), (2, 0));
}

#[tokio::test]
async fn a_call_that_waited_for_a_place_is_not_sent_without_room_for_its_result() {
    let stage = Stage::new();
    let mut program = stage.connect();
    for id in 0..=IN_FLIGHT_OF_SERVER_MAX {
        program.send(&json!({"id": id, "call": "x.slow", "args": {"ms": 500}})).await;
    }
    while stage.host.calls().len() < IN_FLIGHT_OF_SERVER_MAX {
        tokio::task::yield_now().await;
    }
    stage.session.count_bytes(RUN_BYTES_MAX as usize).unwrap();
    let mut unsent = 0;
    for _ in 0..=IN_FLIGHT_OF_SERVER_MAX {
        let answer = program.next().await.unwrap();
        assert_eq!(answer["error"]["code"], "bytes_exhausted", "{answer}");
        unsent += u64::from(answer["error"].get("may_have_run").is_none());
    }
    assert_eq!((unsent, stage.host.calls().len()), (1, IN_FLIGHT_OF_SERVER_MAX));
}
