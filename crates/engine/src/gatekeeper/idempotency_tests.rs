//! Tests of idempotent calls: one execution, whatever callers and servers do.

use harness::TestFolder;
use policy::{Book, Principal};
use serde_json::json;

use super::*;

const SHORT: Duration = Duration::from_millis(50);

fn keeper(folder: &TestFolder) -> Gatekeeper {
    Gatekeeper::new(folder.path(), Book::default())
}

fn caller(name: &str) -> Caller {
    Caller::owner(Principal::new(name).unwrap())
}

fn call(name: &str, tool: &str, key: &str, arguments: Value) -> KeyedCall {
    let key = IdempotencyKey::parse(key).unwrap();
    KeyedCall::new(&caller(name), tool, &key, &arguments, &arguments)
}

async fn carry_out(keeper: &Gatekeeper, call: &KeyedCall, answer: &str) {
    assert_eq!(keeper.recall(call, SHORT).await, Ok(None));
    let claim = keeper.claim(call.clone(), None).await.unwrap().unwrap();
    claim.end(ClaimEnd::Answer(answer.to_owned())).await;
}

#[tokio::test]
async fn the_same_call_gets_the_same_answer_also_from_another_server() {
    let folder = TestFolder::new();
    let first = call("a", "run", "k", json!({"code": "1", "n": {"x": 1, "y": [1, 2]}}));
    carry_out(&keeper(&folder), &first, "answer").await;
    let again = call("a", "run", "k", json!({"n": {"y": [1, 2], "x": 1}, "code": "1"}));
    let other = keeper(&folder);
    assert_eq!(other.recall(&again, SHORT).await, Ok(Some(Recalled::Answer("answer".to_owned()))));
    assert!(other.claim(again, None).await.unwrap().is_none(), "it is not carried out again");
}

#[tokio::test]
async fn other_arguments_are_a_conflict() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    carry_out(&keeper, &call("a", "run", "k", json!({"code": "1"})), "answer").await;
    for other in [json!({"code": "2"}), json!({}), json!({"code": 1}), json!({"code": ["1"]})] {
        let error = keeper.recall(&call("a", "run", "k", other), SHORT).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.retryable), (IDEMPOTENCY_CONFLICT, false));
    }
}

#[tokio::test]
async fn a_call_by_the_name_of_a_sandbox_is_the_same_after_the_name_is_gone() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    let (given, key) = (json!({"sandbox_id": "name"}), IdempotencyKey::parse("k").unwrap());
    let of = |arguments: Value| KeyedCall::new(&caller("a"), "sandbox_close", &key, &given, &arguments);
    carry_out(&keeper, &of(json!({"sandbox_id": "sbx_1"})), "closed").await;
    let again = keeper.recall(&of(json!({"sandbox_id": "name"})), SHORT).await;
    assert_eq!(again, Ok(Some(Recalled::Answer("closed".to_owned()))));
}

#[tokio::test]
async fn a_call_without_effect_is_forgotten() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    let call = call("a", "run", "k", json!({}));
    keeper.claim(call.clone(), None).await.unwrap().unwrap().end(ClaimEnd::NoEffect).await;
    assert_eq!(keeper.recall(&call, SHORT).await, Ok(None));
}

#[tokio::test]
async fn hostile_a_key_of_another_principal_or_tool_is_another_key() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    carry_out(&keeper, &call("a", "run", "k", json!({"secret": 1})), "of a").await;
    carry_out(&keeper, &call("b", "run", "k", json!({"secret": 1})), "of b").await;
    carry_out(&keeper, &call("a", "write_file", "k", json!({"secret": 1})), "of the other tool").await;
    // Not even a conflict tells that another principal used the key.
    assert_eq!(keeper.recall(&call("c", "run", "k", json!({"secret": 2})), SHORT).await, Ok(None));
}

#[tokio::test]
async fn hostile_sixteen_callers_with_one_key_carry_out_one_call() {
    let folder = TestFolder::new();
    let keepers = [Arc::new(keeper(&folder)), Arc::new(keeper(&folder))];
    let carried_out = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (keeper, carried_out) = (Arc::clone(&keepers[number % 2]), Arc::clone(&carried_out));
        tasks.spawn(async move {
            let call = call("a", "run", "k", json!({"code": "1"}));
            loop {
                if let Some(known) = keeper.recall(&call, Duration::from_secs(10)).await.unwrap() {
                    return known;
                }
                let Some(claim) = keeper.claim(call.clone(), None).await.unwrap() else { continue };
                carried_out.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::time::sleep(SHORT).await;
                claim.end(ClaimEnd::Answer("answer".to_owned())).await;
            }
        });
    }
    while let Some(answer) = tasks.join_next().await {
        assert_eq!(answer.unwrap(), Recalled::Answer("answer".to_owned()));
    }
    assert_eq!(carried_out.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn hostile_a_call_whose_server_died_is_never_carried_out_again() {
    let folder = TestFolder::new();
    let run_id = RunId::random().unwrap();
    let call = call("a", "run", "k", json!({}));
    let dead = keeper(&folder);
    let claim = dead.claim(call.clone(), Some(&run_id)).await.unwrap().unwrap();
    let living = keeper(&folder);
    let running = living.recall(&call, SHORT).await.unwrap_err();
    assert_eq!((running.code.as_str(), running.retryable), (IDEMPOTENCY_RUNNING, true), "its server lives");
    // As kill -9 does: nothing is recorded, and the lock is released. The claim stays, because it would tell its end.
    let connection = rusqlite::Connection::open(folder.path().join("gate/idempotency.db")).unwrap();
    connection.execute("UPDATE records SET server = '00000000000000aa'", []).unwrap();
    let error = living.recall(&call, SHORT).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), (IDEMPOTENCY_INTERRUPTED, false));
    assert!(error.message.contains(run_id.as_str()), "{}", error.message);
    assert!(living.claim(call, Some(&run_id)).await.unwrap().is_none());
    drop(claim);
}

#[tokio::test]
async fn a_call_that_was_given_up_by_its_server_is_interrupted() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    let call = call("a", "run", "k", json!({}));
    drop(keeper.claim(call.clone(), None).await.unwrap().unwrap());
    let error = keeper.recall(&call, Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(error.code, IDEMPOTENCY_INTERRUPTED);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_that_of_its_run() {
    let folder = TestFolder::new();
    let keeper = keeper(&folder);
    let run_id = RunId::random().unwrap();
    let call = call("a", "run", "k", json!({}));
    let claim = keeper.claim(call.clone(), Some(&run_id)).await.unwrap().unwrap();
    claim.end(ClaimEnd::Answer("x".repeat(ANSWER_BYTES_MAX + 1))).await;
    assert_eq!(keeper.recall(&call, SHORT).await, Ok(Some(Recalled::Run(run_id))));
}

#[test]
fn hostile_keys_with_control_characters_or_of_great_length_are_no_keys() {
    for bad in
        ["", " ", "a b", "a\n", "a\0b", "\u{7f}", "ä", "\u{200b}", &"x".repeat(256), &"x".repeat(1 << 20)]
    {
        assert_eq!(IdempotencyKey::parse(bad), None, "{bad:.20}");
    }
    for good in ["a", "8e03978e-40d5-43dd-bc93-6894a57f9324", "\"quoted\"", &"x".repeat(255)] {
        assert!(IdempotencyKey::parse(good).is_some());
    }
}

#[test]
fn records_expire_after_a_day_and_one_principal_has_a_bounded_number() {
    let folder = TestFolder::new();
    let gate = folder.path().join("gate");
    let records = Records { database: Database::new(&gate, FORM), roll: Arc::new(Roll::new(&gate)) };
    let now = 1_794_830_400;
    assert!(records.add(&call("a", "run", "0", json!({})), None, now).unwrap());
    let others = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
        INSERT INTO records (principal, tool, key, given, arguments, server, created, state)
        SELECT 'a', 'run', CAST(i AS TEXT), x'', x'', '', ?2, 1 FROM n";
    let connection = rusqlite::Connection::open(gate.join(FORM.file)).unwrap();
    connection.execute(others, params![sql(RECORDS_MAX), sql(now)]).unwrap();
    let full = records.add(&call("a", "run", "one-more", json!({})), None, now + 10).unwrap_err();
    assert!(matches!(full, NotAdded::Full { retry_after_s } if retry_after_s == KEPT_S - 10), "{full:?}");
    assert!(records.add(&call("b", "run", "k", json!({})), None, now).unwrap());
    let known = call("a", "run", "0", json!({}));
    assert!(matches!(records.find(&known, now + KEPT_S - 1), Ok(RecordState::Begun(_))));
    assert!(matches!(records.find(&known, now + KEPT_S), Ok(RecordState::Nothing)));
    assert!(records.add(&known, None, now + KEPT_S).unwrap());
}

#[test]
fn an_older_server_stops_when_the_records_have_a_newer_layout() {
    let folder = TestFolder::new();
    let gate = folder.path().join("gate");
    let records = Records { database: Database::new(&gate, FORM), roll: Arc::new(Roll::new(&gate)) };
    let call = call("a", "run", "k", json!({}));
    assert!(records.add(&call, None, 1).unwrap());
    let newer = rusqlite::Connection::open(gate.join(FORM.file)).unwrap();
    newer.pragma_update(None, "user_version", FORM.layout + 1).unwrap();
    assert!(matches!(records.find(&call, 1), Err(StoreError::TooNew { .. })));
    assert!(matches!(records.add(&call, None, 1), Err(NotAdded::Failed(StoreError::TooNew { .. }))));
}
