//! Upstreams against hostile servers, and against servers of both eras, over processes and HTTP.
//!
//! The tests have their own main function: this executable also takes the role of the supervisor.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

mod hostile;
mod http;
mod lifecycle;
mod login;
mod measure;
mod real;
mod stage;
mod walled;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// The tests by name, each on a runtime of its own.
macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let limit = std::time::Duration::from_secs(60);
                tokio::time::timeout(limit, $module::$name()).await.expect("the test took too long");
            });
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    if let Some(code) = upstreams::supervisor::take_role() {
        return code;
    }
    let mut trials = own_trials();
    let is_installed = real::folder().is_some();
    if !is_installed {
        eprintln!("!!!! SKIPPED real servers: run tests/upstreams/install.sh first");
    }
    trials.extend(trials_of_others().into_iter().map(|trial| trial.with_ignored_flag(!is_installed)));
    let arguments = Arguments::from_args();
    if let Some(out) = std::env::var_os("UPSTREAMS_OUT") {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(measure::measure(out.as_ref()));
        return ExitCode::SUCCESS;
    }
    if let Some(state) = std::env::var_os("UPSTREAMS_TEST_CALLER") {
        return lifecycle::call_until_killed(state.as_ref());
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// With servers of the tests.
fn own_trials() -> Vec<Trial> {
    trials!(
        hostile::endless_pages_are_refused,
        hostile::a_list_that_repeats_itself_is_refused,
        hostile::more_tools_than_the_maximum_are_refused,
        hostile::a_schema_of_a_hundred_megabytes_is_refused,
        hostile::definitions_beyond_the_bytes_of_a_listing_are_refused,
        hostile::a_definition_that_is_nested_too_deeply_is_refused,
        hostile::a_list_that_is_none_is_refused,
        hostile::odd_definitions_are_left_out_and_the_rest_works,
        hostile::a_line_that_is_too_long_fails_its_call_alone,
        hostile::an_answer_beyond_the_callers_bound_is_refused,
        hostile::an_answer_that_is_nested_too_deeply_fails_its_call_alone,
        hostile::wrong_numbers_and_noise_are_passed_over,
        hostile::a_late_answer_does_not_reach_another_call,
        hostile::a_crash_in_mid_call_is_told_and_the_call_is_not_repeated,
        hostile::a_silent_server_times_out_and_was_called_once,
        hostile::a_changed_definition_is_held_until_accepted,
        hostile::a_definition_that_changes_while_the_server_runs_is_held_at_once,
        hostile::a_change_whose_listing_failed_is_listed_again,
        hostile::a_poisoned_description_is_held_and_not_shown,
        hostile::requests_of_a_server_are_refused_and_pings_answered,
        hostile::a_credential_is_taken_out_of_results,
        hostile::palisade_is_not_its_own_upstream,
        lifecycle::a_slow_start_is_shared_by_all_who_wait,
        lifecycle::a_server_that_never_answers_does_not_hold_a_caller,
        lifecycle::a_server_that_dies_at_start_is_left_alone_for_a_while,
        lifecycle::a_server_that_ends_at_the_probe_is_started_again_and_remembered,
        lifecycle::a_server_that_ignores_the_probe_is_offered_a_handshake,
        lifecycle::an_idle_server_is_stopped_and_started_again,
        lifecycle::a_call_is_cancelled,
        lifecycle::the_whole_process_tree_ends_with_the_server,
        lifecycle::a_killed_palisade_leaves_no_upstream_process,
        lifecycle::a_tool_that_writes_is_asked_for_and_a_denied_one_is_refused,
        lifecycle::results_are_learned_from,
        http::both_eras_are_spoken,
        http::an_event_stream_is_read,
        http::a_session_that_is_gone_is_begun_anew,
        http::refusals_are_told_apart,
        http::a_call_that_may_have_arrived_is_not_repeated,
        login::a_login_gives_tokens_that_are_refreshed_and_forgotten,
        login::a_token_that_replaces_a_refused_one_is_taken_out_of_results,
        login::tokens_belong_to_one_principal,
        login::tools_are_listed_with_the_login_of_the_principal_who_asks,
        login::a_login_that_shows_fewer_tools_takes_none_from_others,
        login::an_authorization_server_that_cannot_be_trusted_is_refused,
        login::a_client_is_known_by_the_address_of_its_metadata,
        login::a_client_document_that_is_not_its_own_is_refused,
        login::hostile_metadata_ends_a_login_before_a_code_is_asked_for,
        login::tokens_that_cannot_be_sent_are_refused,
        walled::a_secret_that_a_server_gets_by_access_is_taken_out_of_its_results,
    )
}

/// With real servers of other makers.
fn trials_of_others() -> Vec<Trial> {
    trials!(
        real::everything_echoes_and_gives_an_image,
        real::filesystem_reads_and_writes,
        real::memory_remembers,
        real::git_shows_a_status,
        real::time_tells_the_time,
    )
}
