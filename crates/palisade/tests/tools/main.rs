//! Tools of other servers behind the native wall: the engine, the native backend, the broker and a host of the test, in
//! one process. The spawner must be forked before any thread exists, so these tests have their own main function.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hostile;
mod languages;
mod python;
mod stage;

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
    let trials = trials!(runtime, stage:
        python::a_call_blocks_and_returns_the_value,
        python::calls_run_in_parallel_with_and_without_a_loop,
        python::errors_say_code_server_tool_and_content,
        python::images_and_resources_are_values_and_are_displayed,
        python::forks_threads_and_subprocesses_call,
        python::functions_and_memory_outlive_the_run,
        python::a_call_that_nothing_joins_is_a_warning,
        python::a_run_without_access_has_no_tools,
        python::tools_are_found_described_and_listed,
        python::reserved_and_odd_names_are_reached_by_brackets,
        python::several_blocks_are_a_list_of_values,
        python::calls_in_a_loop_fail_and_are_cancelled_alone,
        languages::javascript_and_typescript_have_the_whole_api,
        languages::the_command_reads_finds_and_describes,
        languages::javascript_calls_with_promises,
        languages::typescript_calls_with_promises,
        languages::a_forgotten_promise_is_a_warning,
        languages::bash_calls_by_a_command,
        languages::c_speaks_the_line_protocol,
        languages::go_speaks_the_line_protocol,
        hostile::forged_and_half_lines_harm_only_their_link,
        hostile::a_flood_ends_at_the_budgets,
        hostile::a_program_that_never_reads_ends_at_its_clock_alone,
        hostile::forks_share_the_budgets_of_their_run,
        hostile::links_and_names_end_with_the_run,
        hostile::labels_stick_to_a_persistent_sandbox,
        hostile::an_interrupted_run_cancels_its_calls_and_keeps_its_state,
        hostile::the_clock_stands_still_while_a_human_is_asked,
        hostile::two_principals_share_no_functions_memory_or_answers,
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(stage.close());
    conclusion.exit_code()
}
