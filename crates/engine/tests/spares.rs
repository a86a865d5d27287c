//! Runs over spares, through the engine's public interface: callers do not notice the pool.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Folder, PATIENCE, program, say};
use engine::{AdmissionLimits, Caller, Engine, EngineConfig, PoolConfig, RunRequest, RunResult};
use policy::Policy;
use sandbox::Outcome;
use sandbox::fake::FakeBackend;
use tokio::sync::oneshot;
use wire::{Exit, FrameBuffer, FromGuest, Stream, ToGuest, VERSION};

const MAIN: u32 = 1;

/// A guest that prints 42 for any program. A guest that starts while `mortal` is set dies at its first file.
pub(crate) fn guest(mut stream: UnixStream, is_mortal: bool) {
    say(&mut stream, &FromGuest::Hello { version: VERSION });
    let (mut frames, mut bytes) = (FrameBuffer::default(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        frames.extend(&bytes[..count]);
        while let Some(message) = frames.next::<ToGuest>().unwrap() {
            match message {
                ToGuest::Open(_) => {
                    say(&mut stream, &FromGuest::Control { process: MAIN, data: b"1\0ready\0".to_vec() });
                }
                ToGuest::PutFile { .. } if is_mortal => return,
                ToGuest::Control { .. } => {
                    let data = b"42\n".to_vec();
                    say(&mut stream, &FromGuest::Output { process: MAIN, stream: Stream::Stdout, data });
                    say(&mut stream, &FromGuest::Exited { process: MAIN, exit: Exit::Code(0) });
                }
                _ => {}
            }
        }
    }
}

fn engine(folder: &Folder, mortal: &Arc<AtomicBool>) -> Engine {
    let mortal = Arc::clone(mortal);
    let fake = FakeBackend::new(move |stream| guest(stream, mortal.load(Ordering::SeqCst)));
    Engine::new(Arc::new(fake), config(folder))
}

pub(crate) fn config(folder: &Folder) -> EngineConfig {
    let (floor, ceiling, age_max) = (2, 4, Duration::from_secs(300));
    EngineConfig {
        state_dir: folder.path().to_owned(),
        policy: Policy::built_in(2),
        admission: AdmissionLimits { runs_max: 4, queue_max: 4, memory_bytes: 4 << 30 },
        pool: PoolConfig { is_on: true, floor, ceiling, memory_bytes_max: 1 << 30, age_max },
    }
}

pub(crate) async fn run(engine: &Engine, request: RunRequest) -> RunResult {
    let (_keep, stop) = oneshot::channel();
    tokio::time::timeout(PATIENCE, engine.run(&Caller::local(), request, None, stop)).await.unwrap()
}

async fn until_ready(engine: &Engine) {
    let deadline = Instant::now() + PATIENCE;
    while engine.pool_snapshot().levels.iter().all(|level| level.ready < 2) {
        assert!(Instant::now() < deadline, "{:?}", engine.pool_snapshot());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn parts(result: &RunResult) -> Vec<&str> {
    result.execution().phases.parts_us.iter().map(|(name, _)| *name).collect()
}

#[tokio::test]
async fn the_second_run_takes_a_spare_and_says_so_in_its_phases() {
    let folder = Folder::new();
    let engine = engine(&folder, &Arc::default());
    let first = run(&engine, program("x")).await;
    assert!(!parts(&first).contains(&"lease"), "{:?}", first.execution().phases);
    until_ready(&engine).await;
    let second = run(&engine, program("x")).await;
    assert_eq!((second.outcome, second.execution().stdout.as_slice()), (Outcome::Completed, &b"42\n"[..]));
    assert_eq!(parts(&second), ["lease", "guest", "program", "teardown"]);
    assert_eq!(engine.pool_snapshot().hits, 1);
}

#[tokio::test]
async fn a_spare_that_dies_as_it_is_taken_is_not_noticed() {
    let folder = Folder::new();
    let mortal = Arc::new(AtomicBool::new(false));
    let engine = engine(&folder, &mortal);
    mortal.store(true, Ordering::SeqCst);
    // The guest of this run dies too, because only the death of a spare is repaired.
    assert_eq!(run(&engine, program("x")).await.outcome, Outcome::Killed);
    until_ready(&engine).await;
    mortal.store(false, Ordering::SeqCst);
    let result = run(&engine, program("x")).await;
    assert_eq!((result.outcome, result.execution().stdout.as_slice()), (Outcome::Completed, &b"42\n"[..]));
    assert_eq!(engine.pool_snapshot().hits, 1);
}

#[tokio::test]
async fn a_look_at_the_machine_is_no_demand() {
    let folder = Folder::new();
    let engine = engine(&folder, &Arc::default());
    for _ in 0..4 {
        let result = run(&engine, RunRequest { cold: true, ..program("x") }).await;
        assert_eq!(result.outcome, Outcome::Completed);
    }
    let pool = engine.pool_snapshot();
    assert!(pool.levels.is_empty() && pool.hits + pool.misses == 0, "{pool:?}");
}
