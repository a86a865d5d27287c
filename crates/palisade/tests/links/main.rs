//! Links behind the native wall: the engine, the native backend and a broker of the test, in one process.
//!
//! No tool grants a link yet, so these tests compose the engine themselves. They have their own main function: the
//! spawner must be forked before any thread exists. `PALISADE_LINKS_OUT=FILE` measures instead of testing
//! (`measure`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod brokers;
mod carry;
mod measure;
mod persistent;
mod stage;
mod warm;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::stage::Stage;

/// The tests by name: each gets the stage and runs on the shared runtime.
macro_rules! trials {
    ($runtime:ident, $stage:ident: $($module:ident::$name:ident),* $(,)?) => {
        vec![$({
            let (handle, stage) = ($runtime.handle().clone(), Arc::clone(&$stage));
            Trial::test(concat!(stringify!($module), "::", stringify!($name)), move || {
                handle.block_on($module::$name(&stage));
                Ok(())
            })
        }),*]
    };
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let spawner = backends::native::start_spawner(stage::become_guest).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stage = Arc::new(runtime.block_on(async { Stage::new(spawner) }));
    if let Some(path) = std::env::var_os("PALISADE_LINKS_OUT") {
        runtime.block_on(measure::measure(&stage, path.as_ref()));
        return ExitCode::SUCCESS;
    }
    let trials = trials!(runtime, stage:
        carry::a_program_talks_to_a_broker_over_the_tools_socket,
        carry::a_program_talks_to_a_broker_over_a_loopback_port,
        carry::half_a_connection_ends_in_either_direction,
        carry::much_passes_in_both_directions_at_once,
        carry::forks_threads_and_other_programs_connect,
        carry::a_compiled_language_and_bash_connect,
        carry::two_listeners_have_brokers_of_their_own,
        bounds::sixty_four_links_are_open_and_the_next_one_waits,
        bounds::few_open_files_are_enough_for_some_links,
        bounds::a_program_that_never_reads_blocks_its_broker_alone,
        bounds::a_flood_over_a_link_does_not_hold_up_output,
        bounds::a_flood_of_output_does_not_hold_up_a_link,
        bounds::one_flooding_link_does_not_hold_up_another,
        bounds::many_connections_leave_nothing_behind,
        bounds::a_full_disk_prevents_the_run_and_says_so,
        brokers::a_broker_that_closes_gives_its_last_bytes_and_an_end,
        brokers::a_broker_that_never_reads_blocks_the_program_alone,
        brokers::a_broker_that_panics_closes_one_link,
        brokers::open_links_end_with_the_run,
        brokers::open_links_end_at_the_clock,
        persistent::the_next_run_without_a_grant_cannot_connect,
        persistent::a_process_left_behind_shares_the_grants_of_the_open_run,
        persistent::a_run_that_is_interrupted_keeps_its_interpreter,
        persistent::a_port_that_is_in_use_prevents_the_run_and_keeps_the_interpreter,
        persistent::files_are_collected_after_links_ended,
        persistent::a_language_that_is_not_live_has_links_too,
        warm::a_spare_is_granted_a_link_after_its_lease,
        warm::a_copy_of_a_warm_interpreter_holds_no_socket_of_the_guest,
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(stage.close());
    conclusion.exit_code()
}
