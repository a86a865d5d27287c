//! The errors of packages: stable codes, with remedies that a model can act on.

use engine::RunError;
use engine::packages::Ecosystem;

/// What an operator can do about a full disk.
const ROOM: &str = "ask the operator to run `palisade packages gc` or to free space in the state directory";

pub(crate) fn off() -> RunError {
    RunError::new("packages_off", "this server installs no packages")
        .remedy("use what get_capabilities lists as installed, or ask the operator to set packages.enabled")
}

pub(crate) fn no_mirror(ecosystem: Ecosystem) -> RunError {
    let message = format!("this server installs no packages of {}", ecosystem.name());
    RunError::new("packages_off", message)
        .remedy("use what get_capabilities lists as installed, or ask the operator to set packages.mirrors")
}

pub(crate) fn elsewhere(name: &str) -> RunError {
    let mut error = RunError::new("packages_off", format!("this server does not install `{name}`"));
    error.cause =
        Some("its scope has a registry of its own in `.npmrc`, which the server does not ask".to_owned());
    error.remedy("ask the operator to name a mirror that has all packages, by packages.mirrors")
}

pub(crate) fn disk(reason: impl std::fmt::Display) -> RunError {
    let mut error = RunError::new("packages_disk_full", "the packages could not be stored");
    error.cause = Some(reason.to_string());
    error.remedy(ROOM)
}

pub(crate) fn timed_out(seconds: u64) -> RunError {
    let message = format!("the installation took longer than {seconds} s");
    let mut error = RunError::new("packages_timeout", message)
        .remedy("try again: what was fetched is kept; or ask for fewer packages at once");
    error.retryable = true;
    error
}

pub(crate) fn unusable(reason: impl std::fmt::Display) -> RunError {
    let mut error = RunError::new("package_refused", "what the packages contain cannot be used");
    error.cause = Some(reason.to_string());
    error.remedy("choose another version or another package")
}

pub(crate) fn failed(reason: impl std::fmt::Display) -> RunError {
    let mut error = RunError::new("packages_failed", "the installation did not work");
    error.cause = Some(reason.to_string());
    error.remedy("try again; if it persists ask the operator to run `palisade doctor`")
}
