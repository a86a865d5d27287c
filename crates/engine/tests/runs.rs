//! Runs that outlive their request: handed over, dropped, looked up, stopped, bounded.
//!
//! The tests use the fake backend; `support` has a guest that obeys the program's lines.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    self, Folder, PATIENCE, complete, config, find_finished, obedient, program, runs, runs_with,
};
use engine::{
    Caller, Durability, Engine, FoundRun, LogRange, Principal, RunEvent, RunId, Runs, RunsConfig, Stop,
    Store, StoreConfig, WallDemand,
};
use sandbox::Outcome;
use wire::{Exit, Stream};

fn all(stream: Option<Stream>) -> LogRange {
    LogRange { stream, offset: 0, limit: usize::MAX }
}

#[tokio::test]
async fn a_finished_run_comes_back_from_the_store_as_it_was() {
    let folder = Folder::new();
    let me = Caller::local();
    for durability in [Durability::BeforeReply, Durability::Behind] {
        let first = runs(&folder, durability);
        let told = complete(&first, &me, "out a\nerr é\nout b\nexit 3").await;
        first.shutdown(Stop::Killed, PATIENCE).await;
        drop(first);
        let second = runs(&folder, durability);
        let found = find_finished(&second, &me, &told.id).await.unwrap();
        let (was, is) = (&told.result, &found.result);
        assert_eq!((is.outcome, is.execution().exit), (Outcome::Failed, Some(Exit::Code(3))));
        let (is_left, was_left) = (is.execution(), was.execution());
        assert_eq!((&is_left.stdout, &is_left.stderr), (&was_left.stdout, &was_left.stderr));
        assert_eq!(is.error, was.error);
        assert_eq!((&is.backend, &is.clamped), (&was.backend, &was.clamped));
        assert_eq!((&is_left.enforced, is_left.usage), (&was_left.enforced, was_left.usage));
        assert_eq!((&is_left.value, &is.warnings), (&was_left.value, &was.warnings));
        assert_eq!((found.created_ms, found.ended_ms), (told.created_ms, told.ended_ms));
        let log = second.log(&me, &told.id, all(None)).await.unwrap().unwrap();
        assert_eq!((log.bytes.as_slice(), log.at_end, log.is_running), ("aéb".as_bytes(), true, false));
    }
}

#[tokio::test]
async fn handed_over_a_run_goes_on_without_its_caller() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::Behind);
    let me = Caller::local();
    let mut started = runs.start(&me, program("out first\nwait")).unwrap();
    let id = started.id().clone();
    started.hand_over().await.unwrap();
    let row: String = rusqlite::Connection::open(folder.database())
        .unwrap()
        .query_row("SELECT outcome FROM runs WHERE id = ?1", [id.as_str()], |row| row.get(0))
        .unwrap();
    assert_eq!(row, "running", "it is written down before hand_over says so");
    drop(started);
    let Some(FoundRun::Live(live)) = runs.find(&me, &id).await.unwrap() else { panic!("it is live") };
    let mut written = live.subscribe();
    written.wait_for(|bytes| *bytes == 5).await.unwrap();
    let part = runs.log(&me, &id, all(None)).await.unwrap().unwrap();
    assert_eq!((part.bytes.as_slice(), part.is_running), (&b"first"[..], true));
    assert!(live.wait(Duration::from_millis(10)).await.is_none());
    live.stop(Stop::Cancelled);
    assert_eq!(live.wait(PATIENCE).await.unwrap().result.outcome, Outcome::Cancelled);
    let found = find_finished(&runs, &me, &id).await.unwrap();
    assert_eq!(
        (found.result.outcome, found.result.execution().stdout.as_slice()),
        (Outcome::Cancelled, &b"first"[..])
    );
}

#[tokio::test]
async fn dropped_before_it_was_handed_over_a_run_ends() {
    let folder = Folder::new();
    let fake = obedient();
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = runs_with(&fake, store, config(Durability::Behind));
    let started = runs.start(&Caller::local(), program("out x\nwait")).unwrap();
    let live = started.live();
    live.subscribe().wait_for(|bytes| *bytes == 1).await.unwrap();
    assert_eq!(fake.alive(), 1);
    drop(started);
    assert_eq!(live.wait(PATIENCE).await.unwrap().result.outcome, Outcome::Cancelled);
    assert_eq!((fake.alive(), runs.live()), (0, 0));
}

#[tokio::test]
async fn a_foreign_principal_sees_nothing() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let (me, other) = (
        Caller::owner(Principal::new("token:a").unwrap()),
        Caller::owner(Principal::new("token:b").unwrap()),
    );
    let ended = complete(&runs, &me, "out secret\nexit 0").await.id.clone();
    let mut live = runs.start(&me, program("out secret\nwait")).unwrap();
    live.hand_over().await.unwrap();
    let guessed = RunId::random().unwrap();
    for id in [&ended, live.id(), &guessed] {
        assert!(runs.find(&other, id).await.unwrap().is_none());
        assert_eq!(runs.log(&other, id, all(None)).await.unwrap(), None);
    }
    assert_eq!(runs.list(&other, 10).await.unwrap(), []);
    let listed = runs.list(&me, 10).await.unwrap();
    let mine: Vec<_> = listed.iter().map(|run| (run.id.clone(), run.outcome)).collect();
    assert_eq!(mine.len(), 2);
    assert!(
        mine.contains(&(ended, Outcome::Completed)) && mine.contains(&(live.id().clone(), Outcome::Running))
    );
    runs.shutdown(Stop::Killed, PATIENCE).await;
}

#[tokio::test]
async fn logs_are_read_in_parts_while_running_and_afterwards() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let me = Caller::local();
    let mut started =
        runs.start(&me, program("out €uro\nerr Grüße\nout 2\npause 1500\nout 3\nwait")).unwrap();
    let (id, live) = (started.id().clone(), started.live());
    started.hand_over().await.unwrap();
    // The pause is longer than the flush interval, so one part comes from the store and one part from memory.
    live.subscribe().wait_for(|bytes| *bytes == 15).await.unwrap();
    for is_running in [true, false] {
        for (stream, whole) in
            [(None, "€uroGrüße23"), (Some(Stream::Stdout), "€uro23"), (Some(Stream::Stderr), "Grüße")]
        {
            let mut read = Vec::new();
            loop {
                let range = LogRange { stream, offset: read.len() as u64, limit: 2 };
                let part = runs.log(&me, &id, range).await.unwrap().unwrap();
                assert_eq!((part.total, part.is_running), (whole.len() as u64, is_running));
                assert!(part.bytes.len() <= 2 && (part.at_end || !part.bytes.is_empty()));
                read.extend(part.bytes);
                if part.at_end {
                    break;
                }
            }
            assert_eq!(String::from_utf8(read).unwrap(), whole);
        }
        live.stop(Stop::Killed);
        live.finished().await;
        while runs.live() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_long_log_is_read_in_bounded_parts() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::Behind);
    let me = Caller::local();
    let started = {
        let mut request = program("flood 3000\nerr end\nexit 0");
        request.ask.output_kb = Some(4096);
        runs.start(&me, request).unwrap()
    };
    let id = tokio::time::timeout(PATIENCE, started.finished()).await.unwrap().id.clone();
    let part = runs.log(&me, &id, all(None)).await.unwrap().unwrap();
    assert_eq!((part.bytes.len(), part.total), (engine::LOG_READ_BYTES_MAX, 3000 * 1024 + 3));
    let range = LogRange { stream: None, offset: 3000 * 1024 - 1, limit: 10 };
    assert_eq!(runs.log(&me, &id, range).await.unwrap().unwrap().bytes, b"xend");
    let found = find_finished(&runs, &me, &id).await.unwrap();
    assert_eq!(
        (found.result.execution().stdout.len(), found.result.execution().stderr.as_slice()),
        (3000 * 1024, &b"end"[..])
    );
}

#[tokio::test]
async fn beyond_its_share_a_caller_is_told_to_come_back() {
    let folder = Folder::new();
    let config = RunsConfig { live_per_principal_max: 2, live_max: 3, ..RunsConfig::default() };
    let runs = runs_with(&obedient(), Store::new(StoreConfig::new(folder.path())), config);
    let [a, b, c] =
        ["token:a", "token:b", "token:c"].map(|name| Caller::owner(Principal::new(name).unwrap()));
    let first = runs.start(&a, program("wait")).unwrap();
    let _second = runs.start(&a, program("wait")).unwrap();
    let busy = runs.start(&a, program("wait")).err().unwrap();
    assert_eq!((busy.code.as_str(), busy.retryable), ("busy", true));
    let _third = runs.start(&b, program("wait")).unwrap();
    assert_eq!(runs.start(&c, program("wait")).err().unwrap().code, "busy");
    first.stop(Stop::Cancelled);
    first.finished().await;
    runs.start(&c, program("wait")).unwrap();
    assert_eq!(runs.snapshot().errors["busy"], 2);
}

#[tokio::test]
async fn a_shutdown_ends_all_runs_and_writes_them_down() {
    let folder = Folder::new();
    let me = Caller::local();
    let first = runs(&folder, Durability::Behind);
    let mut ids = Vec::new();
    for _ in 0..5 {
        let mut started = first.start(&me, program("out x\nwait")).unwrap();
        started.live().subscribe().wait_for(|bytes| *bytes == 1).await.unwrap();
        started.hand_over().await.unwrap();
        ids.push(started.id().clone());
    }
    first.shutdown(Stop::Killed, PATIENCE).await;
    assert_eq!(first.start(&me, program("wait")).err().unwrap().code, "busy");
    let second = runs(&folder, Durability::Behind);
    for id in ids {
        let found = find_finished(&second, &me, &id).await.unwrap();
        assert_eq!(
            (found.result.outcome, found.result.execution().stdout.as_slice()),
            (Outcome::Killed, &b"x"[..])
        );
    }
}

#[tokio::test]
async fn a_refused_run_is_written_down_only_if_it_was_handed_over() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let me = Caller::local();
    let mut request = program("exit 0");
    request.language = "klingon".to_owned();
    let started = runs.start(&me, request).unwrap();
    assert_eq!(started.finished().await.result.outcome, Outcome::Refused);
    assert!(runs.find(&me, started.id()).await.unwrap().is_none());
    let mut request = program("exit 0");
    request.language = "klingon".to_owned();
    let mut started = runs.start(&me, request).unwrap();
    started.hand_over().await.unwrap();
    let found = find_finished(&runs, &me, started.id()).await.unwrap();
    assert_eq!((found.result.outcome, found.language.as_str()), (Outcome::Refused, "klingon"));
}

#[tokio::test]
async fn news_that_nobody_takes_do_not_hold_up_the_run() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let started = runs.start(&Caller::local(), program("flood 200\nexit 0")).unwrap();
    let mut news = started.live().follow();
    let ended = tokio::time::timeout(PATIENCE, started.finished()).await.unwrap();
    assert_eq!(ended.result.execution().stdout.len(), 200 * 1024);
    let first = news.next().await;
    assert!(matches!(first, Some(RunEvent::Output { stream: Stream::Stdout, .. })));
    assert!(news.take_left_out() > 0);
    while news.next().await.is_some() {}
}

#[tokio::test]
async fn who_follows_a_run_hears_each_stream_in_turn_and_then_the_end() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let started = runs.start(&Caller::local(), program("out a\nerr b\nout c\nexit 0")).unwrap();
    let mut news = started.live().follow();
    let mut heard = Vec::new();
    while let Some(RunEvent::Output { stream, data }) =
        tokio::time::timeout(PATIENCE, news.next()).await.unwrap()
    {
        heard.push((stream, data));
    }
    let expected = [(Stream::Stdout, "a"), (Stream::Stderr, "b"), (Stream::Stdout, "c")];
    assert_eq!(heard, expected.map(|(stream, text)| (stream, text.as_bytes().to_vec())));
    assert_eq!(started.live().follow().next().await, None, "a run that is over has no news");
}

#[tokio::test]
async fn runs_are_counted_by_language_and_outcome() {
    let folder = Folder::new();
    let runs = runs(&folder, Durability::BeforeReply);
    let me = Caller::local();
    for code in ["out abc\nexit 0", "exit 0", "exit 1"] {
        complete(&runs, &me, code).await;
    }
    let snapshot = runs.snapshot();
    assert_eq!(snapshot.runs, [("bash", Outcome::Completed, 2), ("bash", Outcome::Failed, 1)]);
    assert_eq!((snapshot.output_bytes, snapshot.live, snapshot.store_failures), (3, 0, 0));
    assert!(snapshot.phases.iter().all(|times| times.times.counts.iter().sum::<u64>() == 3));
}

#[tokio::test]
async fn a_wall_that_cannot_be_built_is_explained_and_then_answered_at_once() {
    let folder = Folder::new();
    let fake = obedient();
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = runs_with(&fake, store, config(Durability::Behind));
    fake.set_failing(Some("procfs"));
    let own = Caller::local();
    for number in 0..8 {
        let run = complete(&runs, &own, "exit 0").await;
        let error = run.result.error.clone().unwrap();
        assert_eq!((run.result.outcome, error.code.as_str()), (Outcome::Unavailable, "wall_unavailable"));
        assert!(error.message.ends_with("failed at procfs"), "{number}: {}", error.message);
        assert_eq!(error.cause.as_deref(), Some("timed out"));
        assert!(error.retryable && error.retry_after_ms.is_some(), "{number}: {error:?}");
        let remedy = error.remedy.unwrap();
        assert!(remedy.contains("does not finish this step") && !remedy.contains("doctor"), "{remedy}");
    }
    assert_eq!(fake.made(), 3, "calls after the third were not tried");
    assert!(runs.engine().wall_failure().is_some());
    fake.set_failing(None);
    tokio::time::timeout(PATIENCE, runs.engine().wall_regained()).await.unwrap();
    assert_eq!(complete(&runs, &own, "exit 0").await.result.outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_machine_that_cannot_build_the_wall_is_not_worth_trying_again() {
    let folder = Folder::new();
    let fake = obedient();
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = runs_with(&fake, store, config(Durability::Behind));
    fake.set_broken(true);
    for _ in 0..6 {
        let error = complete(&runs, &Caller::local(), "exit 0").await.result.error.clone().unwrap();
        assert_eq!(error.code, "wall_unavailable");
        assert_eq!((error.retryable, error.retry_after_ms), (false, None));
        assert_eq!(error.remedy.as_deref(), Some("switch it on"));
    }
}

#[tokio::test]
async fn a_wall_that_is_away_says_when_to_try_again() {
    let folder = Folder::new();
    let fake = obedient();
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = runs_with(&fake, store, config(Durability::Behind));
    fake.set_away(Some(2500));
    let run = complete(&runs, &Caller::local(), "exit 0").await;
    let error = run.result.error.clone().unwrap();
    assert_eq!((run.result.outcome, error.code.as_str()), (Outcome::Unavailable, "wall_unavailable"));
    assert_eq!((error.retryable, error.retry_after_ms), (true, Some(2500)));
    assert!(error.message.ends_with("the fake is away"), "{}", error.message);
    assert!(error.remedy.unwrap().starts_with("try again later"));
    let checked =
        runs.engine().validate(&Caller::local(), &WallDemand::default(), "bash", "exit 0").await.unwrap_err();
    assert_eq!((checked.code.as_str(), checked.retry_after_ms), ("wall_unavailable", Some(2500)));
    fake.set_away(None);
    assert_eq!(complete(&runs, &Caller::local(), "exit 0").await.result.outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_wall_that_cannot_look_for_a_language_now_says_when_to_try_again() {
    let folder = Folder::new();
    let fake = obedient();
    let store = Store::new(StoreConfig::new(folder.path()));
    let runs = runs_with(&fake, store, config(Durability::Behind));
    fake.languages().set("bash", Err(sandbox::InventoryError::Late { reason: "it is away".to_owned() }));
    let run = complete(&runs, &Caller::local(), "exit 0").await;
    let error = run.result.error.clone().unwrap();
    assert_eq!((run.result.outcome, error.code.as_str()), (Outcome::Unavailable, "language_not_ready"));
    assert!(error.retryable && error.retry_after_ms.is_some(), "{error:?}");
}

#[tokio::test]
async fn more_memory_than_can_ever_be_granted_is_clamped_and_told() {
    let folder = Folder::new();
    let engine = Arc::new(Engine::new(Arc::new(support::obedient()), support::engine_config(100 << 20)));
    assert_eq!(engine.policy().maxima.memory_bytes, 100 << 20, "what callers are told");
    let runs =
        Runs::new(engine, Store::new(StoreConfig::new(folder.path())), support::config(Durability::Behind));
    for asked in [None, Some(200), Some(4096)] {
        let mut request = program("exit 0");
        request.ask.memory_mb = asked;
        let run = runs.start(&Caller::local(), request).unwrap().finished().await;
        assert_eq!(run.result.outcome, Outcome::Completed, "{:?}", run.result.error);
        let given: Vec<f64> = run.result.clamped.iter().map(|clamp| clamp.given).collect();
        assert_eq!(given, asked.map(|_| 100.0).into_iter().collect::<Vec<_>>());
    }
}
