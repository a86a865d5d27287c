//! Tests of quotas in the ledger: places, minutes, days, and servers that die.

use harness::TestFolder;
use rusqlite::Connection;

use super::*;

const NOON: u64 = 1_794_830_400;
const MINUTE: u64 = 60;

fn ledger_in(folder: &TestFolder) -> Ledger {
    let gate = folder.path().join("gate");
    Ledger::new(&gate, std::sync::Arc::new(super::super::roll::Roll::new(&gate)))
}

fn quota(amounts: &[(Amount, u64)]) -> Quota {
    let mut quota = Quota::default();
    for (amount, value) in amounts {
        quota.set(*amount, Some(*value));
    }
    quota
}

fn who(name: &str) -> Principal {
    Principal::new(name).unwrap()
}

fn begin(ledger: &Ledger, name: &str, quota: &Quota, at: u64) -> Result<(LeaseId, u64), Exceeded> {
    ledger.begin_run(&who(name), quota, at).map_err(|error| match error {
        NotReserved::Quota(exceeded) => exceeded,
        other => panic!("{other:?}"),
    })
}

fn end(ledger: &Ledger, id: LeaseId, cpu_us: u64, at: u64) {
    ledger.ended().push(EndedLease { id, cpu_us, unbegun: None });
    ledger.settle_ended(at).unwrap();
}

#[test]
fn parallel_runs_are_places_that_are_free_again_when_a_run_ends() {
    let folder = TestFolder::new();
    let (ledger, other) = (ledger_in(&folder), ledger_in(&folder));
    let two = quota(&[(Amount::ParallelRuns, 2)]);
    let (first, _) = begin(&ledger, "key:a", &two, NOON).unwrap();
    begin(&other, "key:a", &two, NOON).unwrap();
    let full = begin(&other, "key:a", &two, NOON).unwrap_err();
    assert_eq!((full.limit, full.used, full.retry_after), (2, 2, Some(PLACE_RETRY)));
    begin(&other, "key:b", &two, NOON).unwrap();
    end(&ledger, first, 0, NOON);
    begin(&other, "key:a", &two, NOON).unwrap();
}

#[test]
fn the_leases_of_a_dead_server_are_cleared_by_any_other_and_charged() {
    let folder = TestFolder::new();
    let (dead, living) = (ledger_in(&folder), ledger_in(&folder));
    let one = quota(&[(Amount::ParallelRuns, 1), (Amount::CpuSPerDay, 10)]);
    let (lease, _) = begin(&dead, "key:a", &one, NOON).unwrap();
    dead.report(&lease, 3_000_000).unwrap();
    assert!(begin(&living, "key:a", &one, NOON).is_err(), "its server lives");
    // The lock is released with the process, here with the ledger.
    drop(dead);
    begin(&living, "key:a", &one, NOON).unwrap();
    let used = living.in_use(&who("key:a"), NOON).unwrap();
    assert_eq!((used.parallel_runs, used.cpu_us_today), (1, 3_000_000));
}

#[test]
fn runs_of_a_minute_are_counted_exactly_and_a_run_that_did_not_begin_is_not() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let three = quota(&[(Amount::RunsPerMinute, 3)]);
    for _ in 0..3 {
        let (id, _) = begin(&ledger, "key:a", &three, NOON + 10).unwrap();
        end(&ledger, id, 0, NOON + 10);
    }
    let full = begin(&ledger, "key:a", &three, NOON + 10).unwrap_err();
    assert_eq!(full.retry_after, Some(Duration::from_secs(50)));
    let (id, minute) = begin(&ledger, "key:a", &three, NOON + MINUTE).unwrap();
    ledger.ended().push(EndedLease { id, cpu_us: 0, unbegun: Some(minute) });
    for _ in 0..3 {
        begin(&ledger, "key:a", &three, NOON + MINUTE).unwrap();
    }
    assert!(begin(&ledger, "key:a", &three, NOON + MINUTE).is_err());
}

#[test]
fn processor_time_of_a_day_refuses_until_midnight() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let ten = quota(&[(Amount::CpuSPerDay, 10)]);
    let (id, _) = begin(&ledger, "key:a", &ten, NOON).unwrap();
    end(&ledger, id, 9_999_999, NOON);
    let (id, _) = begin(&ledger, "key:a", &ten, NOON).unwrap();
    end(&ledger, id, 30_000_000, NOON);
    let full = begin(&ledger, "key:a", &ten, NOON).unwrap_err();
    assert_eq!((full.used, full.retry_after), (39, Some(Duration::from_secs(12 * 3600))));
    assert!(full.to_string().contains("39 of 10; it is free again in 43200 s"), "{full}");
    begin(&ledger, "key:b", &ten, NOON).unwrap();
    begin(&ledger, "key:a", &ten, NOON + 12 * 3600).unwrap();
}

#[test]
fn what_is_reported_of_a_run_in_progress_counts_before_it_ends() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let ten = quota(&[(Amount::CpuSPerDay, 10)]);
    let (id, _) = begin(&ledger, "key:a", &ten, NOON).unwrap();
    ledger.report(&id, 11_000_000).unwrap();
    assert!(begin(&ledger, "key:a", &ten, NOON).is_err());
    end(&ledger, id, 2_000_000, NOON);
    begin(&ledger, "key:a", &ten, NOON).unwrap();
}

#[test]
fn hostile_a_clock_set_back_opens_no_window_again() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let one = quota(&[(Amount::RunsPerMinute, 1), (Amount::CpuSPerDay, 1)]);
    let (id, _) = begin(&ledger, "key:a", &one, NOON).unwrap();
    end(&ledger, id, 2_000_000, NOON);
    for earlier in [NOON - 1, NOON - MINUTE, NOON - 86_400, 0] {
        let refused = begin(&ledger, "key:a", &one, earlier).unwrap_err();
        assert_eq!(refused.amount, Amount::CpuSPerDay, "{earlier}");
        let ends = NOON + 12 * 3600;
        assert_eq!(refused.retry_after, Some(Duration::from_secs(ends - earlier)));
    }
}

#[test]
fn hostile_a_clock_far_ahead_and_back_leaves_the_count_where_it_was() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let one = quota(&[(Amount::RunsPerMinute, 1)]);
    for far in [NOON + 10 * 365 * 86_400, i64::MAX as u64 - 86_400] {
        begin(&ledger, "key:a", &one, far).unwrap();
        assert!(begin(&ledger, "key:a", &one, NOON).is_err(), "the later window is full");
    }
    // Time beyond every calendar neither fails nor counts less.
    assert!(begin(&ledger, "key:a", &one, u64::MAX).is_ok());
    assert!(begin(&ledger, "key:a", &one, NOON).is_err());
}

#[test]
fn hostile_a_counter_at_its_end_stays_there() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let quota = quota(&[(Amount::CpuSPerDay, 1_000_000_000)]);
    for _ in 0..3 {
        let (id, _) = ledger.begin_run(&who("key:a"), &Quota::default(), NOON).unwrap();
        end(&ledger, id, u64::MAX, NOON);
    }
    let full = begin(&ledger, "key:a", &quota, NOON).unwrap_err();
    assert_eq!(full.used, i64::MAX as u64 / US_PER_S);
}

#[test]
fn hostile_a_damaged_row_counts_as_used_and_never_as_room() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let one = quota(&[(Amount::RunsPerMinute, 1)]);
    begin(&ledger, "key:a", &one, NOON).unwrap();
    let other = Connection::open(folder.path().join("gate/ledger.db")).unwrap();
    assert!(other.execute("UPDATE quota_use SET value = 'x'", []).is_err(), "the table is strict");
    other.execute("UPDATE quota_use SET value = -5", []).unwrap();
    assert!(ledger.begin_run(&who("key:a"), &one, NOON).is_err());
}

#[test]
fn an_older_server_stops_when_a_newer_one_has_changed_the_layout() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let quota = quota(&[(Amount::ParallelRuns, 1)]);
    let (id, _) = begin(&ledger, "key:a", &quota, NOON).unwrap();
    let newer = Connection::open(folder.path().join("gate/ledger.db")).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let refused = ledger.begin_run(&who("key:b"), &quota, NOON).unwrap_err();
    assert!(
        matches!(refused, NotReserved::Failed(ref error) if error.code() == "store_too_new"),
        "{refused:?}"
    );
    ledger.ended().push(EndedLease { id, cpu_us: 0, unbegun: None });
    assert!(ledger.settle_ended(NOON).is_err());
    assert_eq!(ledger.ended().len(), 1, "an end that was not written is kept");
}

#[test]
fn hostile_a_run_of_an_earlier_minute_that_did_not_begin_makes_no_room_in_this_one() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let two = quota(&[(Amount::RunsPerMinute, 2)]);
    let (id, minute) = begin(&ledger, "key:a", &two, NOON).unwrap();
    for _ in 0..2 {
        begin(&ledger, "key:a", &two, NOON + MINUTE).unwrap();
    }
    ledger.ended().push(EndedLease { id, cpu_us: 0, unbegun: Some(minute) });
    assert!(begin(&ledger, "key:a", &two, NOON + MINUTE).is_err());
}

#[test]
fn hostile_an_end_that_is_told_twice_counts_once() {
    let folder = TestFolder::new();
    let ledger = ledger_in(&folder);
    let two = quota(&[(Amount::RunsPerMinute, 2)]);
    let (id, minute) = begin(&ledger, "key:a", &two, NOON).unwrap();
    begin(&ledger, "key:a", &two, NOON).unwrap();
    for _ in 0..2 {
        ledger.ended().push(EndedLease { id: id.clone(), cpu_us: 0, unbegun: Some(minute) });
    }
    begin(&ledger, "key:a", &two, NOON).unwrap();
    assert!(begin(&ledger, "key:a", &two, NOON).is_err());
}
