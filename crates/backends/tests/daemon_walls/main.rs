//! Walls with an engine: the contract, attacks, engines that lie or end, servers that are killed, images.
//!
//! It has its own main function: this executable is also the guest of its containers and a server that is killed, and
//! the spawner must be forked before any thread exists. An engine that is not installed is skipped, and the output says
//! so by name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attacks;
mod contract;
mod fire;
mod holes;
mod images;
mod killed;
mod lies;
mod place;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use backends::daemon::Engine;
use backends::host::HostParts;
use backends::native::{NativeBackend, start_spawner};
use libtest_mimic::{Arguments, Failed, Trial};
use relay::become_guest;

use crate::place::Place;

type Test = fn(&Place, Engine) -> Result<(), Failed>;

/// Tests of every engine.
const ALL: [(&str, Test); 14] = [
    ("the_contract_is_kept_by", contract::is_kept),
    ("attacks_fail_behind", attacks::none_succeeds),
    ("a_hole_is_seen_in", holes::is_seen),
    ("lies_are_refused_of", lies::are_refused),
    ("a_wrong_workspace_is_refused_of", lies::a_wrong_workspace_is_refused),
    ("what_others_have_stays_although_listed_by", lies::what_others_have_stays),
    ("a_refusal_is_explained_of", lies::a_refusal_is_explained),
    ("a_missing_engine_is_named", lies::a_missing_engine_is_named),
    ("a_killed_server_leaves_nothing_of", killed::a_server_leaves_nothing),
    ("many_runs_leave_nothing_of", killed::many_leave_nothing),
    ("sigkill_of_any_party_leaves_nothing_of", fire::leaves_nothing),
    ("images_have_their_own_languages_behind", images::have_their_own_languages),
    ("images_are_named_by_digest_behind", images::are_named_by_digest),
    ("a_killed_engine_leaves_nothing", killed::an_engine_leaves_nothing),
];

/// What this executable is besides a test, with a state directory as the first argument.
const ROLES: [&str; 3] = [killed::ROLE, holes::ROLE, fire::ROLE];

fn take_role(native: &NativeBackend) -> ExitCode {
    let role = killed::take_role(native).or_else(|| holes::take_role(native));
    role.or_else(|| fire::take_role(native)).unwrap_or(ExitCode::FAILURE)
}

fn main() -> ExitCode {
    if let Some(status) = static_guest::take_role() {
        return status;
    }
    let spawner = start_spawner(become_guest).unwrap();
    let native = NativeBackend::new(spawner);
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|role| ROLES.contains(&role.as_str())) {
        let state_dir = arguments.next().unwrap_or_default().into();
        return take_role(&native.with_host(HostParts { state_dir, ..HostParts::default() }));
    }
    let place = Arc::new(Place::make(native));
    let mut trials = Vec::new();
    for engine in Engine::ALL {
        for (name, test) in ALL {
            let place = Arc::clone(&place);
            let run = move || match place.socket(engine) {
                Some(_) => test(&place, engine),
                None => {
                    eprintln!("SKIPPED: {} is not installed, so its wall is not tested", engine.name());
                    Ok(())
                }
            };
            trials.push(Trial::test(format!("{name}_{}", engine.name()), run));
        }
    }
    // They look for what is left: one after the other.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(place);
    conclusion.exit_code()
}
