//! Guests that lie, flood, disconnect or stay silent: the engine stays bounded and the sandbox is destroyed.
//!
//! The fake backend runs each guest as a closure; no wall is involved.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use engine::{AdmissionLimits, Caller, Engine, EngineConfig, RunRequest, RunResult, Stdin, Stop};
use policy::{Ask, Policy};
use sandbox::fake::FakeBackend;
use sandbox::{Guarantee, Outcome, Usage};
use tokio::sync::oneshot;
use wire::{Exit, FailureKind, FrameBuffer, FromGuest, Stream, ToGuest, VERSION};

const MAIN: u32 = 1;

fn engine(fake: &FakeBackend) -> Engine {
    let config = EngineConfig {
        state_dir: std::env::temp_dir().join(format!("palisade-engine-{}", std::process::id())),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 4 << 30 },
        pool: engine::PoolConfig::off(),
    };
    Engine::new(Arc::new(fake.clone()), config)
}

fn request() -> RunRequest {
    RunRequest { language: "bash".to_owned(), code: "true".to_owned(), ..RunRequest::default() }
}

async fn run(fake: &FakeBackend, request: RunRequest) -> RunResult {
    let (_stop, stopped) = oneshot::channel();
    tokio::time::timeout(Duration::from_secs(30), engine(fake).run(&Caller::local(), request, None, stopped))
        .await
        .unwrap()
}

fn say(stream: &mut UnixStream, message: &FromGuest) {
    stream.write_all(&wire::encode(message).unwrap()).ok();
}

/// Says hello and takes files until the program arrives; then calls `then`.
fn honest_until_program(mut stream: UnixStream, then: impl FnOnce(UnixStream)) {
    say(&mut stream, &FromGuest::Hello { version: VERSION });
    let is_told = messages(&mut stream).any(|message| matches!(message, ToGuest::Control { .. }));
    if is_told {
        then(stream);
    }
}

/// The host's messages, until it stops sending.
fn messages(stream: &mut UnixStream) -> impl Iterator<Item = ToGuest> + '_ {
    let mut frames = FrameBuffer::default();
    std::iter::from_fn(move || {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = frames.next().unwrap() {
                return Some(message);
            }
            match stream.read(&mut bytes) {
                Ok(count @ 1..) => frames.extend(&bytes[..count]),
                _ => return None,
            }
        }
    })
}

/// A guest that gives this answer to the first file, and does nothing else.
fn guest_that_refuses(answer: impl Fn(u32) -> FromGuest + Send + Sync + 'static) -> FakeBackend {
    FakeBackend::new(move |mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let request = messages(&mut stream).find_map(|message| match message {
            ToGuest::PutFile { request, .. } => Some(request),
            _ => None,
        });
        say(&mut stream, &answer(request.unwrap()));
        stream.read_to_end(&mut Vec::new()).ok();
    })
}

fn guest(then: impl Fn(UnixStream) + Send + Sync + 'static) -> FakeBackend {
    FakeBackend::new(move |stream| honest_until_program(stream, &then))
}

#[tokio::test]
async fn an_honest_guest_completes() {
    let fake = guest(|mut stream| {
        say(&mut stream, &FromGuest::Output { process: MAIN, stream: Stream::Stdout, data: b"hi".to_vec() });
        say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
    });
    let result = run(&fake, request()).await;
    assert_eq!((result.outcome, result.execution().stdout.as_slice()), (Outcome::Completed, &b"hi"[..]));
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn a_guest_of_another_version_or_without_a_word_is_unavailable() {
    let other = FakeBackend::new(|mut stream| say(&mut stream, &FromGuest::Hello { version: VERSION + 1 }));
    let gone = FakeBackend::new(drop);
    for fake in [other, gone] {
        assert_eq!(run(&fake, request()).await.outcome, Outcome::Unavailable);
        assert_eq!(fake.alive(), 0);
    }
}

#[tokio::test]
async fn nonsense_and_giant_frames_end_the_run_as_killed() {
    for frame in [u32::MAX.to_le_bytes().to_vec(), [3, 0, 0, 0, 0xff, 0xff, 0xff].to_vec()] {
        let fake = guest(move |mut stream| {
            stream.write_all(&frame).ok();
            stream.read_to_end(&mut Vec::new()).ok();
        });
        assert_eq!(run(&fake, request()).await.outcome, Outcome::Killed);
        assert_eq!(fake.alive(), 0);
    }
}

#[tokio::test]
async fn a_flood_of_output_is_cut_at_the_limit() {
    let fake = guest(|mut stream| {
        let frame = FromGuest::Output { process: MAIN, stream: Stream::Stderr, data: vec![b'x'; 65_536] };
        let frame = wire::encode(&frame).unwrap();
        while stream.write_all(&frame).is_ok() {}
    });
    let ask = Ask { output_kb: Some(100), ..Ask::default() };
    let result = run(&fake, RunRequest { ask, ..request() }).await;
    assert_eq!((result.outcome, result.execution().stderr.len()), (Outcome::OutputLimit, 100 << 10));
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn a_flood_from_the_driver_changes_nothing() {
    let fake = guest(|mut stream| {
        for _ in 0..64 {
            say(&mut stream, &FromGuest::Control { process: MAIN, data: vec![b'1'; 65_536] });
        }
        say(&mut stream, &FromGuest::StdinTaken { process: MAIN, bytes: u32::MAX });
        say(&mut stream, &FromGuest::Exited { process: 99, exit: Exit::Code(7) });
        say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
    });
    let stdin = Stdin::Bytes(vec![0; 1 << 20]);
    let result = run(&fake, RunRequest { stdin, ..request() }).await;
    assert_eq!((result.outcome, &result.execution().value), (Outcome::Completed, &None));
}

#[tokio::test]
async fn a_guest_that_does_not_read_does_not_stop_the_clock() {
    let fake = guest(|stream| {
        std::thread::sleep(Duration::from_secs(2));
        drop(stream);
    });
    let ask = Ask { timeout_ms: Some(100), ..Ask::default() };
    let stdin = Stdin::Bytes(vec![0; 8 << 20]);
    assert_eq!(run(&fake, RunRequest { ask, stdin, ..request() }).await.outcome, Outcome::TimedOut);
}

#[tokio::test]
async fn a_caller_that_does_not_listen_does_not_stop_the_clock() {
    let fake = guest(|mut stream| {
        let frame = FromGuest::Output { process: MAIN, stream: Stream::Stdout, data: b"x".to_vec() };
        let frame = wire::encode(&frame).unwrap();
        while stream.write_all(&frame).is_ok() {}
    });
    let (events, _deaf) = tokio::sync::mpsc::channel(1);
    let (_stop, stopped) = oneshot::channel();
    let ask = Ask { timeout_ms: Some(100), ..Ask::default() };
    let request = RunRequest { ask, ..request() };
    let run = tokio::time::timeout(
        Duration::from_secs(20),
        engine(&fake).run(&Caller::local(), request, Some(events), stopped),
    )
    .await;
    assert_eq!(run.unwrap().outcome, Outcome::TimedOut);
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn a_file_that_the_guest_refuses_is_told_and_ends_the_run() {
    const ENOSPC: i32 = 28;
    const ENOTDIR: i32 = 20;
    for (errno, code) in [(ENOSPC, "inputs_do_not_fit"), (ENOTDIR, "bad_inputs")] {
        let fake =
            guest_that_refuses(move |request| FromGuest::Failed { request, kind: FailureKind::File, errno });
        let result = run(&fake, request()).await;
        assert_eq!((result.outcome, result.error.unwrap().code.as_str()), (Outcome::Refused, code));
        assert_eq!(fake.alive(), 0);
    }
}

#[tokio::test]
async fn an_order_names_the_files_that_it_needs() {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let fake = FakeBackend::new(move |mut stream| {
        say(&mut stream, &FromGuest::Hello { version: VERSION });
        let mut numbers = (None, None);
        for message in messages(&mut stream) {
            match message {
                ToGuest::PutFile { request, .. } => numbers.0 = Some(request),
                ToGuest::Control { after, .. } => numbers.1 = Some(after),
                _ => {}
            }
            if numbers.1.is_some() {
                break;
            }
        }
        tell.send(numbers).unwrap();
        say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
    });
    assert_eq!(run(&fake, request()).await.outcome, Outcome::Completed);
    let (placed, after) = told.recv().unwrap();
    assert!(placed.is_some_and(|number| number != 0) && placed == after, "{placed:?} {after:?}");
}

#[tokio::test]
async fn a_limit_the_host_counted_beats_what_the_guest_says() {
    let fake =
        guest(|mut stream| say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(1) }))
            .using(Usage { oom_kills: 1, ..Usage::default() });
    assert_eq!(run(&fake, request()).await.outcome, Outcome::OutOfMemory);
}

#[tokio::test]
async fn a_wall_with_a_promise_missing_is_refused_and_destroyed() {
    let fake = guest(drop).lacking(Guarantee::NetworkNone);
    let result = run(&fake, request()).await;
    assert_eq!(result.outcome, Outcome::Refused);
    let error = result.error.unwrap();
    assert_eq!(error.code, "guarantee_missing");
    assert!(error.message.contains("network_none"));
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn a_silent_program_is_ended_by_the_clock_the_caller_or_the_drop() {
    let fake = guest(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let ask = Ask { timeout_ms: Some(50), ..Ask::default() };
    assert_eq!(run(&fake, RunRequest { ask, ..request() }).await.outcome, Outcome::TimedOut);
    for (stop_with, expected) in [(Stop::Cancelled, Outcome::Cancelled), (Stop::Killed, Outcome::Killed)] {
        let (stop, stopped) = oneshot::channel();
        stop.send(stop_with).unwrap();
        assert_eq!(engine(&fake).run(&Caller::local(), request(), None, stopped).await.outcome, expected);
    }
    let (_stop, stopped) = oneshot::channel();
    let engine = engine(&fake);
    let dropped = tokio::time::timeout(
        Duration::from_millis(200),
        engine.run(&Caller::local(), request(), None, stopped),
    )
    .await;
    assert!(dropped.is_err());
    assert_eq!(fake.alive(), 0);
}

#[tokio::test]
async fn bad_requests_never_reach_a_sandbox() {
    let fake = FakeBackend::new(|_| panic!("a sandbox was made"));
    let bad = [
        RunRequest { language: "klingon".to_owned(), ..request() },
        RunRequest { code: "a\0b".to_owned(), ..request() },
        RunRequest { ask: Ask { memory_mb: Some(0), ..Ask::default() }, ..request() },
    ];
    for request in bad {
        let result = run(&fake, request).await;
        assert_eq!(result.outcome, Outcome::Refused);
        assert!(result.error.unwrap().remedy.is_some());
    }
}
