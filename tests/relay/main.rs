//! Tests of the relay: it keeps the contract, ends as it must, and carries an engine.
//!
//! It has its own main function: relays and clients of these tests are this executable in another role, and a
//! spawner must be forked before any thread exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod death;
mod engines;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use backends::native::start_spawner;
use jail::Spawner;
use libtest_mimic::{Arguments, Trial};
use relay::{RelayBackend, RelayProcess, Tap};

/// The spawner of the one test that has a native wall in its own process.
type OwnSpawner = Arc<Mutex<Option<Spawner>>>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(syntax::role::NAME) {
        return syntax::role::main(&arguments.collect::<Vec<_>>());
    }
    if let Some(status) = relay::take_role().or_else(death::take_role) {
        return status;
    }
    let spawner = Arc::new(Mutex::new(Some(start_spawner(relay::become_guest).unwrap())));
    let tests: Vec<Trial> =
        conformance::tests().into_iter().chain(death::tests()).chain(engines::tests(&spawner)).collect();
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A test that runs in a runtime with two threads.
fn test<F: Future<Output = ()>>(name: &'static str, body: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(body());
        Ok(())
    })
}

/// A wall and its relay.
fn relayed() -> (RelayBackend, RelayProcess) {
    tapped(None)
}

fn tapped(tap: Option<Arc<Tap>>) -> (RelayBackend, RelayProcess) {
    let (process, stream) = RelayProcess::start().unwrap();
    (RelayBackend::tapped(stream, tap).unwrap(), process)
}
