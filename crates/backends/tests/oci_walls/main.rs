//! Walls with an OCI runtime: the conformance suite, attacks, runtimes that lie or fail, servers that are killed.
//!
//! It has its own main function: this executable is also the guest of its containers and a server that is killed, and
//! the spawner must be forked before any thread exists. A runtime that is not installed is skipped, and the output says
//! so by name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attacks;
mod contract;
mod fire;
mod holes;
mod killed;
mod lies;
mod place;

use std::process::ExitCode;
use std::sync::Arc;

use backends::native::{NativeBackend, start_spawner};
use backends::oci::OciRuntime;
use libtest_mimic::{Arguments, Failed, Trial};
use relay::become_guest;

use crate::place::Place;

type Test = fn(&Place, OciRuntime) -> Result<(), Failed>;

/// Tests of every runtime.
const ALL: [(&str, Test); 8] = [
    ("the_contract_is_kept_by", contract::is_kept),
    ("attacks_fail_behind", attacks::none_succeeds),
    ("a_hole_is_seen_in", holes::is_seen),
    ("what_is_left_out_is_noticed_behind", lies::what_is_left_out_is_noticed),
    ("a_failure_is_explained_by", lies::a_failure_is_explained),
    ("a_killed_server_leaves_nothing_of", killed::leaves_nothing),
    ("many_runs_leave_nothing_of", killed::many_leave_nothing),
    ("sigkill_of_any_party_leaves_nothing_of", fire::leaves_nothing),
];

fn main() -> ExitCode {
    if let Some(status) = static_guest::take_role() {
        return status;
    }
    let spawner = start_spawner(become_guest).unwrap();
    let native = NativeBackend::new(spawner);
    let role = killed::take_role(&native).or_else(|| holes::take_role(&native));
    if let Some(status) = role.or_else(|| fire::take_role(&native)) {
        return status;
    }
    let place = Arc::new(Place::make(native));
    let mut trials = Vec::new();
    for runtime in OciRuntime::ALL {
        for (name, test) in ALL {
            let place = Arc::clone(&place);
            let run = move || match runtime.find() {
                Some(_) => test(&place, runtime),
                None => {
                    eprintln!("SKIPPED: {} is not installed, so its wall is not tested", runtime.command());
                    Ok(())
                }
            };
            trials.push(Trial::test(format!("{name}_{}", runtime.name()), run));
        }
    }
    let missing = Arc::clone(&place);
    trials
        .push(Trial::test("a_missing_runtime_is_named", move || lies::a_missing_runtime_is_named(&missing)));
    // Each counts processors and looks for what is left: one after the other.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}
