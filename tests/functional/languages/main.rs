//! The suite over all languages, with tests that come from folders and not from code: `runtimes/<language>/cases/` and
//! `programs/`. A language that is not installed is counted as skipped, by name.
//!
//! A binary of its own, because the standard runner cannot make tests at run time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
mod names;
mod places;
mod programs;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut trials = cases::trials();
    trials.extend(names::trials());
    trials.extend(places::trials());
    trials.extend(programs::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
