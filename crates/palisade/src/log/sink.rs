//! The destination of log lines: standard error, without ever waiting for its reader.

use std::io::{IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A pipe that is ready for writing accepts this much without blocking (PIPE_BUF, pipe(7)).
const LINE_BYTES_MAX: usize = 4096;

/// A destination of lines.
pub(super) trait Sink: Send + Sync {
    /// Writes a line and returns true, or drops it; never waits.
    fn write(&self, line: &[u8]) -> bool;

    /// Whether it is a terminal.
    fn is_terminal(&self) -> bool;
}

/// The standard error of this process.
pub(super) struct Stderr;

impl Sink for Stderr {
    fn write(&self, line: &[u8]) -> bool {
        let mut stderr = std::io::stderr().lock();
        line.len() <= LINE_BYTES_MAX && has_room(&stderr) && stderr.write_all(line).is_ok()
    }

    fn is_terminal(&self) -> bool {
        std::io::stderr().is_terminal()
    }
}

fn has_room(stderr: &std::io::StderrLock<'_>) -> bool {
    let mut wanted = [PollFd::new(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut wanted, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
