//! The record has no values, and is bounded.

use policy::{Caller, Principal};
use serde_json::json;

use super::*;

fn call<'c>(caller: &'c Caller, tool: &'c [&'c str], arguments: &'c Value) -> JudgedCall<'c> {
    JudgedCall { caller, names: tool, arguments }
}

#[test]
fn equal_decisions_are_one_row_without_any_value() {
    let folder = harness::TestFolder::new();
    let record = Record::new(folder.path());
    let caller = Caller::local();
    let arguments = json!({"language": "python", "code": "print('a secret')"});
    record.note(&call(&caller, &["run"], &arguments), "p", (Decided::Allowed, ""));
    record.write().unwrap();
    assert!(!folder.path().join("gate").exists(), "off until it begins");
    record.begin();
    for _ in 0..2 {
        for _ in 0..3 {
            record.note(&call(&caller, &["run"], &arguments), "p", (Decided::Allowed, ""));
        }
        record.write().unwrap();
    }
    record.note(&call(&caller, &["run"], &json!({"secret name": 1})), "p", (Decided::Denied, "/default"));
    record.write().unwrap();
    let found = decisions(folder.path(), 0).unwrap();
    let allowed = found.iter().find(|one| one.verdict == Decided::Allowed).unwrap();
    assert_eq!((allowed.times, allowed.language.as_str()), (6, "python"));
    assert_eq!(allowed.arguments, Some(vec!["code".to_owned(), "language".to_owned()]));
    let denied = found.iter().find(|one| one.verdict == Decided::Denied).unwrap();
    assert_eq!((denied.rule.as_str(), &denied.arguments), ("/default", &None), "a name could carry data");
    for entry in std::fs::read_dir(folder.path().join("gate")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
    }
    assert!(decisions(folder.path(), u64::MAX / 4).unwrap().is_empty());
    assert!(decisions(&folder.path().join("nowhere"), 0).unwrap().is_empty());
}

#[test]
fn a_caller_that_varies_its_arguments_does_not_push_out_the_others() {
    let mut held = Held::default();
    let (loud, quiet) = (Caller::owner(Principal::new("key:1").unwrap()), Caller::local());
    let letters: Vec<String> = (b'a'..=b'z')
        .flat_map(|one| (b'a'..=b'z').map(move |two| format!("{}{}", one as char, two as char)))
        .collect();
    for name in &letters {
        let arguments = json!({name.as_str(): 1});
        held.note(&call(&loud, &["run"], &arguments), "", (Decided::Denied, "/x"), 1);
    }
    held.note(&call(&quiet, &["run"], &json!({})), "", (Decided::Allowed, ""), 1);
    assert_eq!(held.tallies.len(), VARIETY_MAX as usize + 2);
    let times: u64 = held.tallies.values().map(|(_, tally)| tally.times).sum();
    assert_eq!((times, held.lost), (letters.len() as u64 + 1, 0));
}

#[test]
fn old_and_too_many_rows_are_forgotten() {
    let folder = harness::TestFolder::new();
    let record = Record::new(folder.path());
    record.begin();
    record.note(&call(&Caller::local(), &["run"], &json!({})), "", (Decided::Allowed, ""));
    record.write().unwrap();
    let mut connection = ledger::open(&folder.path().join("gate")).unwrap();
    connection.execute("UPDATE decisions SET hour = 5", []).unwrap();
    let now = unix_ms() / HOUR_MS;
    let fresh = |hour: u64, tool: &str| {
        (
            hour,
            Decision {
                principal: String::new(),
                label: String::new(),
                policy: String::new(),
                tool: tool.to_owned(),
                language: String::new(),
                arguments: None,
                verdict: Decided::Allowed,
                rule: String::new(),
                times: 1,
                first_ms: 1,
                last_ms: 1,
            },
        )
    };
    let many: Vec<_> = (0..ROWS_MAX + 10)
        .map(|number| fresh(now - 2 + u64::from(number >= 20), &number.to_string()))
        .collect();
    write(&mut connection, many.iter()).unwrap();
    let left: i64 = connection.query_row("SELECT count(*) FROM decisions", [], |row| row.get(0)).unwrap();
    assert_eq!(left, ROWS_MAX - 10, "the old row, and the older of two hours");
}

#[test]
fn a_text_that_is_no_language_is_not_recorded_as_one() {
    let mut held = Held::default();
    let arguments = json!({"language": "a secret"});
    held.note(&call(&Caller::local(), &["run"], &arguments), "", (Decided::Denied, "/x"), 1);
    let (_, tally) = held.tallies.values().next().unwrap();
    assert_eq!(tally.language, "");
}

#[test]
fn decisions_of_very_many_callers_are_bounded_between_two_writes() {
    let mut held = Held::default();
    for number in 0..TALLIES_MAX + 10 {
        let caller = Caller::owner(Principal::new(&format!("key:{number}")).unwrap());
        held.note(&call(&caller, &["run"], &json!({})), "", (Decided::Allowed, ""), 1);
    }
    assert_eq!((held.tallies.len(), held.lost), (TALLIES_MAX, 10));
}

#[test]
fn nothing_is_recorded_in_a_database_with_a_newer_layout() {
    let folder = harness::TestFolder::new();
    let record = Record::new(folder.path());
    record.begin();
    let (caller, none) = (Caller::local(), json!({}));
    record.note(&call(&caller, &["run"], &none), "", (Decided::Allowed, ""));
    record.write().unwrap();
    let file = folder.path().join("gate").join(ledger::FILE);
    Connection::open(file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    record.note(&call(&caller, &["run"], &none), "", (Decided::Allowed, ""));
    assert!(matches!(record.write(), Err(StoreError::TooNew { .. })));
}
