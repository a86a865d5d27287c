//! Packages behind the native wall: the engine, the native backend and layers that the test makes by hand, in one process.
//!
//! They have their own main function: the spawner must be forked before any thread exists. `PALISADE_LAYERS_OUT=FILE` measures instead of testing (`measure`). As root, one test runs all others
//! again as an ordinary user.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attacks;
mod book;
mod fresh;
mod measure;
mod persistent;
mod stage;
mod warm;

use std::process::{Command, ExitCode};
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
    if let Some(path) = std::env::var_os("PALISADE_LAYERS_OUT") {
        runtime.block_on(measure::measure(&stage, path.as_ref()));
        return ExitCode::SUCCESS;
    }
    let mut trials = trials!(runtime, stage:
        fresh::python_and_its_child_processes_import_a_package,
        fresh::a_package_wins_over_one_of_the_host_and_not_over_the_programs_own_file,
        fresh::javascript_requires_and_imports_a_package,
        fresh::typescript_imports_a_package,
        fresh::bash_finds_the_commands_of_packages,
        fresh::a_compiled_program_has_them_on_its_path,
        fresh::a_run_without_packages_sees_none,
        warm::a_spare_with_a_layer_never_serves_a_run_without_it,
        warm::a_spare_imports_what_programs_import_and_never_outside_its_wall,
        persistent::packages_of_a_sandbox_are_there_whenever_it_awakes,
        persistent::a_live_python_imports_what_is_installed_while_it_runs,
        persistent::a_live_node_finds_what_it_did_not_find_before,
        persistent::a_second_installation_covers_the_first_and_keeps_its_versions,
        persistent::a_run_installs_what_it_asks_for,
        persistent::a_layer_that_was_removed_is_made_again,
        persistent::languages_that_are_not_live_see_the_packages,
        attacks::a_layer_cannot_be_written_or_remounted,
        attacks::set_uid_files_of_a_layer_have_no_effect,
        attacks::the_way_up_from_a_layer_stays_inside,
        attacks::another_sandbox_never_sees_an_attached_layer,
        attacks::killing_what_attaches_leaves_nothing,
    );
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("as_an_ordinary_user", || as_an_ordinary_user().map_err(Into::into)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(stage.close());
    conclusion.exit_code()
}

/// Runs the other tests again without privileges.
fn as_an_ordinary_user() -> Result<(), String> {
    if !harness::users().contains(&harness::User::Ordinary) {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let ids = [format!("--reuid={}", harness::ORDINARY_USER), format!("--regid={}", harness::ORDINARY_USER)];
    let mut command = Command::new("setpriv");
    command.args(ids).args(["--clear-groups", "--"]).arg(own).arg("--test-threads=2");
    command.env_clear().env("PATH", stage::USUAL_PATH).current_dir("/");
    command.envs(std::env::var_os("PALISADE_BIN").map(|path| ("PALISADE_BIN", path)));
    let ended = command.output().map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&ended.stdout).into_owned()),
    }
}
