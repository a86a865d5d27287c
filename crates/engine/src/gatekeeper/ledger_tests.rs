//! Tests of the ledger: exact, durable, and closed to clocks and amounts that are not plain.

use std::sync::Arc;

use harness::TestFolder;
use policy::{Book, Judgement, Syntax};
use serde_json::json;

use super::*;

const NOON: u64 = 1_794_830_400;

/// A policy with a limit of `max` calls a minute, and one of spent amounts a day for all callers.
fn ledger_in(folder: &TestFolder) -> Ledger {
    let gate = folder.path().join("gate");
    Ledger::new(&gate, Arc::new(Roll::new(&gate)))
}

fn rules(max: u64) -> Arc<NamedRules> {
    let file = json!({"version": "1", "default": "allow",
        "all_tools": {"limits": [{"counter": "calls", "window": "minute", "max": max}]},
        "tools": {"pay": {"limits": [
            {"counter": "spent", "window": "day", "max": 100, "increment_from": "args.amount", "scope": "all"}]}}});
    let book = Book::new(&[("p".to_owned(), file.to_string(), Syntax::Json)], Vec::new()).unwrap();
    Arc::clone(book.get("p").unwrap())
}

fn call(
    ledger: &Ledger,
    rules: &NamedRules,
    principal: &str,
    arguments: serde_json::Value,
    unix_s: u64,
) -> Result<Reserved, String> {
    let Judgement::Allowed { reserve, .. } = rules.rules.judge(&["pay"], &arguments) else { panic!() };
    ledger.reserve(rules, &Principal::new(principal).unwrap(), &reserve, unix_s).map_err(
        |error| match error {
            NotReserved::Limit { denied, retry_after } => {
                format!("{} {}", denied.rule, retry_after.as_secs())
            }
            NotReserved::Quota(exceeded) => exceeded.to_string(),
            NotReserved::Failed(error) => error.code().to_owned(),
        },
    )
}

#[test]
fn a_limit_is_exact_and_begins_again_with_its_window() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(3));
    let call = |principal, at| call(&ledger, &rules, principal, json!({"amount": 1}), at);
    for _ in 0..3 {
        call("a", NOON + 10).unwrap();
    }
    assert_eq!(call("a", NOON + 10).unwrap_err(), "/all_tools/limits/calls-per-minute 50");
    call("b", NOON + 10).unwrap();
    call("a", NOON + 60).unwrap();
}

#[test]
fn a_refused_reservation_changes_no_counter() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(3));
    let spend = |amount| call(&ledger, &rules, "a", json!({"amount": amount}), NOON);
    spend(json!(99.5)).unwrap();
    assert!(spend(json!(0.6)).unwrap_err().contains("spent-per-day"));
    assert!(spend(json!(1e30)).unwrap_err().contains("spent-per-day"));
    spend(json!(0.5)).unwrap();
    assert!(spend(json!(0)).is_ok(), "the refused calls counted as none of the three");
    assert!(spend(json!(0)).unwrap_err().contains("calls-per-minute"));
    let other = call(&ledger, &rules, "b", json!({"amount": 1}), NOON).unwrap_err();
    assert!(other.contains("spent-per-day"), "all callers share it: {other}");
}

#[test]
fn what_had_no_effect_is_returned_once_and_only_to_its_window() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(1));
    let call = |at| call(&ledger, &rules, "a", json!({"amount": 1}), at);
    let reserved = call(NOON).unwrap();
    assert!(call(NOON).is_err());
    ledger.give_back(&reserved).unwrap();
    let second = call(NOON).unwrap();
    call(NOON + 60).unwrap();
    ledger.give_back(&second).unwrap();
    assert!(call(NOON + 60).is_err(), "the later window keeps its count");
}

#[test]
fn a_clock_that_goes_back_opens_no_window_again() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(2));
    let call = |at| call(&ledger, &rules, "a", json!({"amount": 1}), at);
    call(NOON + 120).unwrap();
    call(NOON).unwrap();
    assert!(call(NOON + 60).is_err());
    assert!(call(0).is_err());
    assert!(call(NOON + 125).is_err());
    call(NOON + 180).unwrap();
}

#[test]
fn counters_outlive_the_server_and_a_change_of_the_file() {
    let folder = TestFolder::new();
    let before = ledger_in(&folder);
    call(&before, &rules(2), "a", json!({"amount": 1}), NOON).unwrap();
    drop(before);
    let after = ledger_in(&folder);
    call(&after, &rules(2), "a", json!({"amount": 1}), NOON).unwrap();
    assert!(call(&after, &rules(2), "a", json!({"amount": 1}), NOON).is_err());
    call(&after, &rules(3), "a", json!({"amount": 1}), NOON).unwrap();
}

#[test]
fn two_ledgers_of_one_folder_let_exactly_the_limit_pass() {
    const LIMIT: u64 = 200;
    let folder = TestFolder::new();
    let (rules, ledgers) = (rules(LIMIT), [ledger_in(&folder), ledger_in(&folder)]);
    let passed = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (ledger, rules, passed) = (&ledgers[worker % 2], &rules, &passed);
            scope.spawn(move || {
                for _ in 0..40 {
                    if call(ledger, rules, "a", json!({"amount": 0}), NOON).is_ok() {
                        passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), LIMIT);
}

#[test]
fn a_ledger_that_cannot_be_used_lets_nothing_pass() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let ask = || call(&ledger, &rules(5), "a", json!({"amount": 1}), NOON);
    ask().unwrap();
    let other = rusqlite::Connection::open(folder.path().join("gate").join(FORM.file)).unwrap();
    other.execute("UPDATE counters SET value = 'many'", []).unwrap();
    assert_eq!(ask().unwrap_err(), "store_corrupt");
    other.execute("UPDATE counters SET value = '1'", []).unwrap();
    ask().unwrap();
    other.pragma_update(None, "user_version", FORM.layout + 1).unwrap();
    assert_eq!(ask().unwrap_err(), "store_too_new");
    let blocked = TestFolder::new();
    std::fs::write(blocked.path().join("gate"), "").unwrap();
    assert!(call(&ledger_in(&blocked), &rules(5), "a", json!({"amount": 1}), NOON).is_err());
}

#[test]
fn hostile_amounts_that_are_no_plain_number_are_denied_and_change_no_counter() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(1000));
    let who = Principal::new("a").unwrap();
    let passes = |text: &str| {
        let arguments: serde_json::Value = serde_json::from_str(text).unwrap();
        match rules.rules.judge(&["pay"], &arguments) {
            Judgement::Allowed { reserve, .. } => ledger.reserve(&rules, &who, &reserve, NOON).is_ok(),
            Judgement::Denied(_) => false,
        }
    };
    for hostile in [
        r#"{"amount": "5"}"#,
        r#"{"amount": "NaN"}"#,
        r#"{"amount": -1}"#,
        r#"{"amount": -0.000000000000000000000000001}"#,
        r#"{"amount": 1e400}"#,
        r#"{"amount": 1e308}"#,
        r#"{"amount": 99999999999999999999999999999999999999999999999999999999999999999999999999999999}"#,
        r#"{"amount": null}"#,
        r#"{"amount": true}"#,
        r#"{"amount": [1]}"#,
        r#"{"amount": {"amount": 1}}"#,
        r#"{}"#,
    ] {
        assert!(!passes(hostile), "{hostile}");
    }
    assert!(passes(r#"{"amount": 100}"#), "all of it is still there");
    assert!(!passes(r#"{"amount": 1e-27}"#), "and nothing is left, not even for a part too small to matter");
}

#[test]
fn hostile_an_amount_that_cannot_be_added_exactly_is_denied() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(1000));
    let pay = |amount: &str| {
        let arguments = serde_json::from_str(&format!("{{\"amount\": {amount}}}")).unwrap();
        call(&ledger, &rules, "a", arguments, NOON)
    };
    pay("1").unwrap();
    assert!(pay("1e-90000").is_err(), "the sum would have 90,000 digits");
    pay("99").unwrap();
    assert!(pay("1").is_err(), "the limit of 100 is reached");
}

#[test]
fn hostile_what_is_returned_twice_does_not_make_room_below_zero() {
    let folder = TestFolder::new();
    let (ledger, rules) = (ledger_in(&folder), rules(1));
    let call = || call(&ledger, &rules, "a", json!({"amount": 1}), NOON);
    let reserved = call().unwrap();
    ledger.give_back(&reserved).unwrap();
    ledger.give_back(&reserved).unwrap();
    call().unwrap();
    assert!(call().is_err());
}
