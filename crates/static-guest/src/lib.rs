//! The roles of the static guest: a small program that walls with a container runtime use on both sides.
//!
//! - [`jail::STAGE_ROLE`], outside: builds the root of a container in a mount namespace of its own, then becomes the runtime.
//! - [`jail::GUEST_ROLE`], inside: process 1 of the container. It raises the last walls and becomes the guest.
//!
//! Its executable needs nothing of the file system that it runs in, so it works in any root. Tests may use any
//! executable that calls [`take_role`] first.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Takes the role that the first argument names; `None` if it names none. The process must have one thread.
pub fn take_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        jail::STAGE_ROLE => Some(become_runtime(&arguments.collect::<Vec<_>>())),
        jail::GUEST_ROLE => {
            let kernel = arguments.next().unwrap_or_default();
            if let Some(socket) = arguments.next()
                && let Err(error) = jail::meet_host(Path::new(&socket))
            {
                eprintln!("the server cannot be reached: {error}");
                return Some(ExitCode::FAILURE);
            }
            Some(become_guest(jail::Kernel::from_name(&kernel.to_string_lossy())))
        }
        _ => None,
    }
}

fn become_guest(kernel: jail::Kernel) -> ExitCode {
    let Some((stream, plan)) = jail::enter_container(kernel) else { return ExitCode::FAILURE };
    let status = guest::run_without_gate(stream);
    jail::leave_container(&plan, status)
}

/// Says on standard error why it failed, as the runtime would.
fn become_runtime(arguments: &[OsString]) -> ExitCode {
    let [plan, program, rest @ ..] = arguments else { return ExitCode::FAILURE };
    if let Err(problem) = prepare(Path::new(plan)) {
        eprintln!("staging failed at {problem}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(rest).exec();
    eprintln!("the runtime could not be executed: {error}");
    ExitCode::FAILURE
}

fn prepare(plan: &Path) -> Result<(), String> {
    let bytes = std::fs::read(plan).map_err(|error| format!("plan: {error}"))?;
    jail::stage_from(&bytes).map_err(|error| format!("{}: {}", error.step, error.source()))
}
