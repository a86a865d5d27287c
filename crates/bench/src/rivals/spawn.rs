//! Runs a command to its end, with a timeout, and measures its time.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Maximum length of the quoted error output of a command.
const COMPLAINT_BYTES: usize = 300;

/// The time from the start of the process to its end; it must print the expected output.
///
/// The wait uses a pidfd, so nothing is polled and a hanging process can be ended.
pub(crate) fn timed(mut command: Command, expected: &str, patience: Duration) -> Result<Duration, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A separate process group, so that its children are killed with it.
    command.process_group(0);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
    let ended = wait(&child, patience);
    if !ended {
        give_up(&mut child);
        return Err(format!("it did not end within {} s", patience.as_secs()));
    }
    let status = child.wait().map_err(|error| format!("waiting for it: {error}"))?;
    let took = began.elapsed();
    let said = child.stdout.take().map(read_what_is_there).unwrap_or_default();
    if status.success() && said == expected {
        return Ok(took);
    }
    let complaint = child.stderr.take().map(read_what_is_there).unwrap_or_default();
    let complaint: String = complaint.trim().chars().take(COMPLAINT_BYTES).collect();
    Err(format!("it ended with {status} and printed {said:?}: {complaint}"))
}

/// Whether the process ended in time.
fn wait(child: &Child, patience: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(handle)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return true };
    let timeout = Timespec { tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    let mut watched = [PollFd::new(&handle, PollFlags::IN)];
    loop {
        match poll(&mut watched, Some(&timeout)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            // The wait itself then reports the error.
            Err(_) => return true,
        }
    }
}

fn give_up(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait().ok();
}

/// The content of a pipe, without waiting for other holders of its write end.
fn read_what_is_there(mut stream: impl Read + std::os::fd::AsFd) -> String {
    if rustix::io::ioctl_fionbio(&stream, true).is_err() {
        return String::new();
    }
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes).unwrap_or(0);
    bytes.truncate(count);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(code: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", code]);
        command
    }

    #[test]
    fn what_prints_the_right_thing_has_a_time() {
        assert!(timed(shell("echo 1"), "1\n", Duration::from_secs(20)).is_ok());
    }

    #[test]
    fn what_fails_says_why() {
        let error = timed(shell("echo broken >&2; exit 3"), "1\n", Duration::from_secs(20)).unwrap_err();
        assert!(error.contains("broken") && error.contains('3'), "{error}");
    }

    #[test]
    fn what_hangs_is_given_up() {
        let error = timed(shell("sleep 60 & wait"), "1\n", Duration::from_secs(0)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
    }
}
