//! The static guest as a program. Without a role it only tells what it was built from.

use std::process::ExitCode;

fn main() -> ExitCode {
    static_guest::take_role().unwrap_or_else(|| {
        eprintln!("{}", option_env!("PALISADE_ZYGOTE_SOURCES").unwrap_or("built on its own"));
        ExitCode::FAILURE
    })
}
