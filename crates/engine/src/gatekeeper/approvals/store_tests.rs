//! Tests of the database of approvals: who decides, who passes, what ends.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use policy::{ApproveBy, Caller, Principal, Scope, Scopes};

use super::store::{OPEN_MAX, OPEN_OF_PRINCIPAL_MAX};
use super::*;

const NOW: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn new(principal: &str, number: u64) -> NewApproval {
    let mut fingerprint = [0; 32];
    fingerprint[..8].copy_from_slice(&number.to_le_bytes());
    fingerprint[8..8 + principal.len()].copy_from_slice(principal.as_bytes());
    NewApproval {
        fingerprint,
        principal: Principal::new(principal).unwrap(),
        label: principal.to_owned(),
        tool: "run".to_owned(),
        policy: "p".to_owned(),
        rule: "/tools/run/require_approval".to_owned(),
        reason: None,
        by: ApproveBy::Operator,
        timeout_s: 3600,
        arguments: "{\"x\":1}".to_owned(),
        preview: "run x=1".to_owned(),
    }
}

fn approve(store: &ApprovalStore, id: &ApprovalId, now_ms: u64) -> Result<Approval, ApprovalError> {
    store.decide(id, Choice::Approve, (&Approver::Local, None), now_ms)
}

fn key(principal: &str, scopes: &[Scope]) -> Approver {
    let principal = Principal::new(principal).unwrap();
    Approver::Caller(Caller { scopes: Scopes::of(scopes), ..Caller::owner(principal) })
}

#[test]
fn an_approval_is_consumed_once_by_many_threads_of_two_servers() {
    let folder = harness::TestFolder::new();
    let (one, other) = (ApprovalStore::new(folder.path()), ApprovalStore::new(folder.path()));
    let id = one.ask(&new("key:a", 1), NOW).unwrap().id;
    assert!(one.consume(&id, NOW).unwrap().is_none(), "nobody has approved");
    approve(&other, &id, NOW).unwrap();
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (store, id, passed) = (if number % 2 == 0 { &one } else { &other }, &id, &passed);
            scope.spawn(move || {
                if store.consume(id, NOW).unwrap().is_some() {
                    passed.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(passed.load(Ordering::SeqCst), 1);
    assert_eq!(one.get(&id, NOW).unwrap().0.state, ApprovalState::Consumed);
}

#[test]
fn a_question_and_its_answer_outlive_the_server() {
    let folder = harness::TestFolder::new();
    let id = ApprovalStore::new(folder.path()).ask(&new("key:a", 1), NOW).unwrap().id;
    approve(&ApprovalStore::new(folder.path()), &id, NOW).unwrap();
    let later = ApprovalStore::new(folder.path());
    let found = later.find(&new("key:a", 1).fingerprint, NOW).unwrap().unwrap();
    assert_eq!((found.id, found.state), (id, ApprovalState::Approved));
    assert_eq!(later.seal_key().unwrap(), ApprovalStore::new(folder.path()).seal_key().unwrap());
}

#[test]
fn the_same_call_asks_one_question() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    assert_eq!(store.ask(&new("key:a", 1), NOW).unwrap().id, id);
    assert_ne!(store.ask(&new("key:a", 2), NOW).unwrap().id, id, "another call");
    assert_ne!(store.ask(&new("key:b", 1), NOW).unwrap().id, id, "another caller");
    approve(&store, &id, NOW).unwrap();
    assert!(store.consume(&id, NOW).unwrap().is_some());
    assert_ne!(store.ask(&new("key:a", 1), NOW).unwrap().id, id, "the first one is used up");
}

#[test]
fn a_key_never_decides_about_its_own_call_and_needs_the_scope() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    let decide = |approver: &Approver| {
        store.decide(&id, Choice::Approve, (approver, None), NOW).map_err(|error| error.code())
    };
    assert_eq!(decide(&key("key:a", &[Scope::Admin])).unwrap_err(), "approval_own_call");
    assert_eq!(decide(&key("key:b", &[Scope::Sandbox, Scope::Audit])).unwrap_err(), "insufficient_scope");
    let of_call = |principal: &str| Approver::OfCall(Principal::new(principal).unwrap());
    assert_eq!(decide(&of_call("key:a")).unwrap_err(), "approval_operator_only");
    assert_eq!(decide(&of_call("key:b")).unwrap_err(), "unknown_approval");
    assert_eq!(store.get(&id, NOW).unwrap().0.state, ApprovalState::Pending);
    let decided = decide(&key("key:b", &[Scope::Approve])).unwrap();
    assert_eq!(decided.decision.unwrap().by, "key:b");
    assert_eq!(decide(&Approver::Local).unwrap_err(), "approval_decided");
}

#[test]
fn a_denial_lasts_until_it_expires_and_takes_back_what_was_not_used() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    approve(&store, &id, NOW).unwrap();
    let deny = |now_ms| store.decide(&id, Choice::Deny, (&Approver::Local, Some("no")), now_ms);
    let denied = deny(NOW).unwrap();
    assert_eq!(
        (denied.state, denied.decision.unwrap().reason.as_deref()),
        (ApprovalState::Denied, Some("no"))
    );
    assert!(store.consume(&id, NOW).unwrap().is_none());
    assert_eq!(
        store.ask(&new("key:a", 1), NOW).unwrap().state,
        ApprovalState::Denied,
        "nobody is asked again"
    );
    assert_eq!(deny(NOW).unwrap_err().code(), "approval_decided");
    let later = store.ask(&new("key:a", 1), NOW + HOUR_MS).unwrap();
    assert_eq!(later.state, ApprovalState::Pending);
    let long = "x".repeat(REASON_CHARACTERS_MAX + 1);
    let error = store.decide(&later.id, Choice::Deny, (&Approver::Local, Some(&long)), NOW).unwrap_err();
    assert_eq!(error.code(), "bad_reason");
}

#[test]
fn questions_and_unused_approvals_expire_and_stay_expired() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    let late = approve(&store, &id, NOW + HOUR_MS).unwrap_err();
    assert_eq!(late.to_string(), format!("the approval {id} is expired already"));
    assert_eq!(
        approve(&store, &id, NOW).unwrap_err().code(),
        "approval_decided",
        "also if the clock goes back"
    );
    let second = store.ask(&new("key:a", 1), NOW).unwrap().id;
    approve(&store, &second, NOW + HOUR_MS - 1).unwrap();
    assert_eq!(
        store.get(&second, NOW + 2 * HOUR_MS - 2).unwrap().0.state,
        ApprovalState::Approved,
        "a new time"
    );
    assert!(store.consume(&second, NOW + 2 * HOUR_MS).unwrap().is_none());
}

#[test]
fn what_had_no_effect_is_given_back_unless_it_was_asked_again() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    approve(&store, &id, NOW).unwrap();
    assert!(!store.give_back(&id, NOW).unwrap(), "it is not consumed");
    assert!(store.consume(&id, NOW).unwrap().is_some() && store.give_back(&id, NOW).unwrap());
    assert!(store.consume(&id, NOW).unwrap().is_some());
    store.ask(&new("key:a", 1), NOW).unwrap();
    assert!(!store.give_back(&id, NOW).unwrap(), "another question is open");
}

#[test]
fn open_approvals_are_bounded_per_caller_and_in_all() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    for number in 0..OPEN_OF_PRINCIPAL_MAX {
        store.ask(&new("key:a", number), NOW).unwrap();
    }
    let full = store.ask(&new("key:a", 999), NOW).unwrap_err();
    assert!(full.to_string().contains("of this caller") && full.code() == "approvals_full", "{full}");
    for number in OPEN_OF_PRINCIPAL_MAX..OPEN_MAX {
        store.ask(&new(&format!("key:{}", number / 30), number), NOW).unwrap();
    }
    assert!(store.ask(&new("key:z", 1), NOW).unwrap_err().to_string().contains("of this server"));
    assert!(store.ask(&new("key:z", 1), NOW + HOUR_MS).is_ok(), "they expire");
    assert_eq!(store.list(Listed::Open, NOW + HOUR_MS).unwrap().len(), 1);
}

#[test]
fn open_approvals_end_with_their_key_and_with_a_restored_backup() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let ids: Vec<_> = ["key:a", "key:b", "key:c"]
        .into_iter()
        .map(|name| store.ask(&new(name, 1), NOW).unwrap().id)
        .collect();
    approve(&store, &ids[0], NOW).unwrap();
    assert_eq!(store.void_of(&Principal::new("key:a").unwrap(), NOW).unwrap(), 1);
    assert!(store.consume(&ids[0], NOW).unwrap().is_none());
    approve(&store, &ids[1], NOW).unwrap();
    assert_eq!(store.void_all(NOW).unwrap(), 2);
    assert!(store.consume(&ids[1], NOW).unwrap().is_none());
    let all = store.list(Listed::All, NOW).unwrap();
    assert!(all.len() == 3 && all.iter().all(|one| one.state == ApprovalState::Expired), "{all:?}");
}

#[test]
fn nothing_counts_in_a_folder_that_others_can_write() {
    let folder = harness::TestFolder::new();
    let store = ApprovalStore::new(folder.path());
    let id = store.ask(&new("key:a", 1), NOW).unwrap().id;
    approve(&store, &id, NOW).unwrap();
    let gate = folder.path().join("gate");
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(store.consume(&id, NOW).unwrap_err().code(), "approvals_exposed");
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(store.consume(&id, NOW).unwrap().is_some());
}
