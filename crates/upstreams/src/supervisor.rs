//! A role of the binary: runs one upstream server and ends its whole process tree.
//!
//! A server that is started by `npx` or a shell has children, and these may leave its process group. This process adopts
//! every descendant (`PR_SET_CHILD_SUBREAPER`, prctl(2)), so none escapes it. Standard input is a pipe from Palisade: when
//! the writer is gone, because Palisade stopped the server or was killed, `poll` reports it at once, whatever is unread.
//! Then the tree has [`GRACE`] to end by itself, and is killed.
//!
//! The role reads and writes nothing: the server inherits the streams.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

/// The first argument that selects the role; the command line follows.
pub const ROLE: &str = "__upstream";
/// How long a server may take to end when its input is closed.
const GRACE: Duration = Duration::from_millis(700);
/// How long killing may take.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
/// The exit status when the server cannot be started.
const CANNOT: u8 = 125;

/// Takes the role if the first argument selects it.
pub fn take_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    Some(run(&arguments.collect::<Vec<_>>()))
}

fn run(command: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(CANNOT) };
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        return ExitCode::from(CANNOT);
    }
    let started = Command::new(program).args(arguments).process_group(0).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            eprintln!("{}: {error}", program.to_string_lossy());
            return ExitCode::from(CANNOT);
        }
    };
    let status = follow(&mut child);
    kill_tree();
    status
}

/// Waits until the server has ended, or was told to end and had its time.
fn follow(child: &mut Child) -> ExitCode {
    // The server's own end of its output is the only one, so that its end is seen.
    let null = std::fs::File::options().read(true).write(true).open("/dev/null");
    if null.and_then(|null| Ok(rustix::stdio::dup2_stdout(&null)?)).is_err() {
        return ExitCode::from(CANNOT);
    }
    let Ok(handle) = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return ExitCode::from(CANNOT);
    };
    let stdin = std::io::stdin();
    let is_ended = wait(handle.as_fd(), Some(stdin.as_fd()), None);
    let is_ended = is_ended || wait(handle.as_fd(), None, Some(GRACE));
    match is_ended.then(|| child.wait()) {
        Some(Ok(status)) => {
            ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        }
        _ => ExitCode::from(CANNOT),
    }
}

/// Waits for the end of a process, of the writer of a pipe, or of a time. Returns whether the process ended.
fn wait(process: BorrowedFd<'_>, pipe: Option<BorrowedFd<'_>>, patience: Option<Duration>) -> bool {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let mut polled = vec![PollFd::from_borrowed_fd(process, PollFlags::IN)];
        polled.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::empty())));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return polled[0].revents().contains(PollFlags::IN),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Kills every descendant. All of them are children of this process sooner or later.
fn kill_tree() {
    let until = Instant::now() + KILL_PATIENCE;
    while Instant::now() < until {
        for pid in descendants() {
            // A process that ended meanwhile is what is wanted.
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or(());
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name may contain anything; the state and the parent follow its last parenthesis (proc(5)).
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let (mut seen, mut queue) = (HashSet::new(), vec![rustix::process::getpid().as_raw_nonzero().get()]);
    while let Some(parent) = queue.pop() {
        for pid in children.get(&parent).into_iter().flatten().filter(|pid| seen.insert(**pid)) {
            queue.push(*pid);
            found.extend(Pid::from_raw(*pid));
        }
    }
    found
}
