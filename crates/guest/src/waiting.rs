//! Whether an interpreter waits for its next order, as the kernel reports it.
//!
//! [`crate::Guest`] calls it when the host asks. A driver shares its process with the program, so its message
//! that a run is over may come from the program. A program cannot fake one fact without making it true: its
//! first thread sleeps in a system call that waits for the driver's socket. Such a call is read(2) or a
//! similar one, or epoll_wait(2) with the socket among the watched descriptors. This module ignores threads,
//! timers and processes that a run left behind; they may continue.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::Pid;

use crate::sys;

/// The longest such line: nine numbers.
const LINE_BYTES_MAX: usize = 256;
/// How many bytes are read of the list of file descriptors that an epoll watches.
const WATCHED_BYTES_MAX: usize = 64 << 10;
/// How many threads are looked at for one that waits for a pipe.
const THREADS_MAX: usize = 1024;

/// The identity of a socket or a pipe, the same for all copies of its file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(file)?;
        Ok(Self { device: found.st_dev, inode: found.st_ino })
    }
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The thread waits for data from that socket.
    Waits,
    /// The thread does something else.
    Busy,
    /// The process cannot be inspected.
    Hidden,
}

/// Looks at the first thread of a process.
pub(crate) fn look(pid: Pid, socket: FileId) -> Look {
    let number = pid.as_raw_nonzero().get();
    let call = match blocked_in(&format!("/proc/{number}")) {
        Ok(Some(call)) => call,
        Ok(None) => return Look::Busy,
        // A dead child keeps its folder until it is buried, so a file that is missing is one that this kernel does not have.
        Err(error) if sys::is_withheld(&error) => return Look::Hidden,
        Err(_) => return Look::Busy,
    };
    let waits = match call.kind {
        Kind::Read => is_file(number, call.descriptor, socket),
        Kind::Epoll => watches(number, call.descriptor, socket),
    };
    match waits {
        Ok(true) => Look::Waits,
        _ => Look::Busy,
    }
}

/// A number that does not change while the first thread does nothing, if it sleeps now: its context switches, or its
/// processor time where the kernel counts none (gVisor). This is all that can be observed on a host that lets no process
/// inspect another.
pub(crate) fn sleep_count(pid: Pid) -> Option<u64> {
    let number = pid.as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{number}/task/{number}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let count = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
    let switches = count("voluntary_ctxt_switches:").zip(count("nonvoluntary_ctxt_switches:"));
    let total = switches.map(|(own, forced)| own.wrapping_add(forced)).or_else(|| {
        processor_ticks(&fs::read_to_string(format!("/proc/{number}/task/{number}/stat")).ok()?)
    })?;
    field("State:")?.starts_with('S').then_some(total)
}

/// The processor time in a line of /proc/PID/stat, see proc(5). The name in brackets may contain any character.
fn processor_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()?.wrapping_add(next()?))
}

/// A system call in which a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocked {
    kind: Kind,
    descriptor: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Epoll,
}

/// The system call in which the thread of that folder sleeps, if that call waits for a file descriptor. See proc(5),
/// /proc/PID/syscall.
fn blocked_in(folder: &str) -> io::Result<Option<Blocked>> {
    let file =
        rustix::fs::open(format!("{folder}/syscall"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut line = [0_u8; LINE_BYTES_MAX];
    let count = rustix::io::read(&file, &mut line)?;
    Ok(str::from_utf8(&line[..count]).ok().and_then(parse))
}

/// Parses `running`, `-1 SP PC`, or the number of the call and its arguments.
fn parse(line: &str) -> Option<Blocked> {
    let mut words = line.split_ascii_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let kind = if sys::READS.contains(&call) {
        Kind::Read
    } else if sys::EPOLL_WAITS.contains(&call) {
        Kind::Epoll
    } else {
        return None;
    };
    let descriptor = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    // The kernel uses the lower half.
    Some(Blocked { kind, descriptor: descriptor as u32 as i32 })
}

fn is_file(pid: i32, descriptor: i32, file: FileId) -> io::Result<bool> {
    let found = rustix::fs::stat(format!("/proc/{pid}/fd/{descriptor}"))?;
    let is_plain = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok(!is_plain && FileId { device: found.st_dev, inode: found.st_ino } == file)
}

/// Whether a thread of any process waits for data from that pipe. Looks at a bounded number of threads.
pub(crate) fn is_awaited(pipe: FileId) -> bool {
    let mut left = THREADS_MAX;
    for process in numbers("/proc") {
        for thread in numbers(&format!("/proc/{process}/task")) {
            if left == 0 {
                return false;
            }
            left -= 1;
            let Ok(Some(call)) = blocked_in(&format!("/proc/{process}/task/{thread}")) else { continue };
            let waits = match call.kind {
                Kind::Read => is_file(process, call.descriptor, pipe),
                Kind::Epoll => watches(process, call.descriptor, pipe),
            };
            if waits.unwrap_or(false) {
                return true;
            }
        }
    }
    false
}

/// The entries of a folder of procfs that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Whether a socket is among those that an epoll watches. See proc(5), /proc/PID/fdinfo.
fn watches(pid: i32, epoll: i32, socket: FileId) -> io::Result<bool> {
    use std::io::Read;
    let file = fs::File::open(format!("/proc/{pid}/fdinfo/{epoll}"))?;
    let mut text = String::new();
    file.take(WATCHED_BYTES_MAX as u64).read_to_string(&mut text)?;
    Ok(text
        .lines()
        .filter(|line| line.starts_with("tfd:"))
        .any(|line| watched_inode(line) == Some(socket.inode)))
}

fn watched_inode(line: &str) -> Option<u64> {
    let number = line.split_once("ino:")?.1.split_ascii_whitespace().next()?;
    u64::from_str_radix(number, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let line = "3 (a) b) S 2 2 2 0 0 0 0 0 0 0 7 5 0 0 20 0 1 0 11 11223040 695";
        assert_eq!(processor_ticks(line), Some(12));
        assert_eq!(processor_ticks("3 (a"), None);
    }

    #[test]
    fn lines_are_understood() {
        let line = format!("{} 0x64 0x7f00 0x10000 0x0 0x0 0x0 0x7ffc 0x7f11\n", libc::SYS_read);
        assert_eq!(parse(&line), Some(Blocked { kind: Kind::Read, descriptor: 100 }));
        let line = format!("{} 0xd 0x7f00 0x400 0xffffffff 0x0 0x8 0x7ffc 0x7f11\n", libc::SYS_epoll_pwait);
        assert_eq!(parse(&line), Some(Blocked { kind: Kind::Epoll, descriptor: 13 }));
        for line in ["running\n", "-1 0x7ffc 0x7f11\n", "", "35 0x1 0x2\n", "0\n", "0 100\n"] {
            assert_eq!(parse(line), None, "{line}");
        }
        let line = "tfd:        3 events:       19 data: 3  pos:0 ino:1a2b sdev:9";
        assert_eq!(watched_inode(line), Some(0x1a2b));
        assert_eq!(watched_inode("tfd: 3"), None);
    }
}
