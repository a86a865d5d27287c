//! Runs the conformance suite against the native backend.
//!
//! It has its own main function: the spawner must be forked before any thread exists, and the standard test
//! runner has threads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backends::host::HostParts;
use backends::native::{NativeBackend, start_spawner};
use relay::{Broken, WireGuest, become_guest};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::conformance::{Area, Subject, check, check_area};
use sandbox::{Backend, BackendError, Guarantee, SandboxSpec};

const NAME: &str = "native_keeps_the_contract";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    if has("--list") {
        if !has("--ignored") {
            println!("{NAME}: test");
        }
        return ExitCode::SUCCESS;
    }
    let spawner = start_spawner(become_guest).unwrap();
    let spawner_pid = spawner.pid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let state = StateFolder::make();
    let parts = HostParts { state_dir: state.0.clone(), ..HostParts::default() };
    let result = runtime.block_on(async {
        let backend = Arc::new(NativeBackend::new(spawner).with_host(parts));
        native_keeps_the_contract(&backend).await?;
        every_broken_area_is_noticed(&backend).await?;
        a_build_that_hangs_says_where(&backend, spawner_pid).await
    });
    drop(state);
    match result {
        Ok(()) => {
            println!(
                "test {NAME} ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
            );
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!(
                "{problem}\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
            );
            ExitCode::FAILURE
        }
    }
}

/// The server's state, removed at the end.
struct StateFolder(PathBuf);

impl StateFolder {
    fn make() -> Self {
        let path = std::env::temp_dir().join(format!("palisade-test-{}-conformance", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

async fn native_keeps_the_contract(backend: &NativeBackend) -> Result<(), String> {
    let areas = check(Subject { backend, guest: Some(&WireGuest) }).await?;
    if areas != Area::ALL {
        return Err(format!("the native wall has everything; checked was {areas:?}"));
    }
    every_guarantee_is_kept(backend).await?;
    many_in_a_row(backend).await
}

/// The suite fails when the contract is broken, and names the area.
async fn every_broken_area_is_noticed(backend: &Arc<NativeBackend>) -> Result<(), String> {
    for area in Area::ALL {
        let broken = Broken::new(Arc::clone(backend) as Arc<dyn Backend>, area);
        match check_area(Subject { backend: &broken, guest: Some(&WireGuest) }, area).await {
            Err(told) if told.starts_with(&format!("{area:?}: ")) => {}
            other => return Err(format!("{area:?} is broken and the suite says {other:?}")),
        }
    }
    Ok(())
}

/// Stops the process that clones, and then resumes it.
async fn a_build_that_hangs_says_where(backend: &NativeBackend, spawner: Pid) -> Result<(), String> {
    kill_process(spawner, Signal::STOP).unwrap();
    let built = backend.create(&SandboxSpec::default()).await;
    kill_process(spawner, Signal::CONT).unwrap();
    match built.err() {
        Some(BackendError::Build { step, source }) if step == "clone" => {
            let words = source.to_string();
            if source.kind() != ErrorKind::TimedOut || !words.contains("is stopped") {
                return Err(format!("the cause of a build that hangs: {words}"));
            }
        }
        other => return Err(format!("a build that hangs ended with {other:?}")),
    }
    let again = backend.create(&SandboxSpec::default()).await;
    again.map(drop).map_err(|error| format!("after the spawner went on: {error}"))
}

async fn every_guarantee_is_kept(backend: &NativeBackend) -> Result<(), String> {
    let enforced = backend.probe().await.map_err(|error| format!("probe: {error}"))?;
    match enforced.missing(&[]).as_slice() {
        [] => Ok(()),
        missing => Err(format!(
            "missing: {:?}",
            missing.iter().map(|guarantee: &Guarantee| guarantee.name()).collect::<Vec<_>>()
        )),
    }
}

/// The number of this server's file descriptors returns to its initial value: what is kept for the next
/// sandbox is dropped within seconds.
async fn many_in_a_row(backend: &NativeBackend) -> Result<(), String> {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let spec = SandboxSpec::default();
    let mut before = 0;
    for round in 0..50 {
        let mut sandbox = backend.create(&spec).await.map_err(|error| format!("create: {error}"))?;
        sandbox.destroy().await.map_err(|error| format!("destroy: {error}"))?;
        drop(sandbox);
        if round == 0 {
            before = open();
        }
    }
    for _ in 0..100 {
        if open() <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = open();
    if after > before { Err(format!("descriptors grew from {before} to {after}")) } else { Ok(()) }
}
