//! A role of the binary: runs another program that ends when its starter ends.
//!
//! Probes of interpreters run outside any sandbox. Started through this role, they do not outlive a killed
//! server. The parent-death signal survives `exec`. It is bound to the thread that started this process, and
//! that thread waits for it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal};

/// First argument that selects this role; the starter's process id and the command line follow.
const ROLE: &str = "__tied";

/// The prefix of a command line.
pub(crate) fn launcher() -> Vec<String> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    vec!["/proc/self/exe".to_owned(), ROLE.to_owned(), own]
}

/// Takes the role if the first argument selects it.
pub(crate) fn take_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let starter = arguments.next()?.to_string_lossy().parse().ok().and_then(Pid::from_raw);
    Some(run(starter, &arguments.collect::<Vec<_>>()))
}

fn run(starter: Option<Pid>, command: &[OsString]) -> ExitCode {
    const CANNOT: u8 = 125;
    let die_with_parent = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let (Some((program, arguments)), true) = (command.split_first(), die_with_parent) else {
        return ExitCode::from(CANNOT);
    };
    // The starter may have ended before the signal was set.
    if rustix::process::getppid() != starter {
        return ExitCode::from(CANNOT);
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("{}: {error}", program.to_string_lossy());
    ExitCode::from(CANNOT)
}
