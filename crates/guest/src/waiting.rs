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

/// The identity of a socket, the same for all copies of its file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketId {
    device: u64,
    inode: u64,
}

impl SocketId {
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(socket)?;
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
pub(crate) fn look(pid: Pid, socket: SocketId) -> Look {
    let call = match blocked_in(pid) {
        Ok(Some(call)) => call,
        Ok(None) => return Look::Busy,
        // A dead child keeps its folder until it is buried, so a file that is missing is one that this kernel does not have.
        Err(error) if sys::is_withheld(&error) => return Look::Hidden,
        Err(_) => return Look::Busy,
    };
    let waits = match call.kind {
        Kind::Read => is_socket(pid, call.descriptor, socket),
        Kind::Epoll => watches(pid, call.descriptor, socket),
    };
    match waits {
        Ok(true) => Look::Waits,
        _ => Look::Busy,
    }
}

/// The number of context switches of the first thread, if it sleeps now. The number does not change while the
/// thread does nothing. This is all that can be observed on a host that lets no process inspect another.
pub(crate) fn sleep_count(pid: Pid) -> Option<u64> {
    let number = pid.as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{number}/task/{number}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let count = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
    let total = count("voluntary_ctxt_switches:")?.wrapping_add(count("nonvoluntary_ctxt_switches:")?);
    field("State:")?.starts_with('S').then_some(total)
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

/// The system call in which the first thread sleeps, if that call waits for a file descriptor. See proc(5),
/// /proc/PID/syscall.
fn blocked_in(pid: Pid) -> io::Result<Option<Blocked>> {
    let path = format!("/proc/{}/syscall", pid.as_raw_nonzero());
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
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

fn is_socket(pid: Pid, descriptor: i32, socket: SocketId) -> io::Result<bool> {
    let found = rustix::fs::stat(format!("/proc/{}/fd/{descriptor}", pid.as_raw_nonzero()))?;
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    Ok(is_socket && SocketId { device: found.st_dev, inode: found.st_ino } == socket)
}

/// Whether a socket is among those that an epoll watches. See proc(5), /proc/PID/fdinfo.
fn watches(pid: Pid, epoll: i32, socket: SocketId) -> io::Result<bool> {
    use std::io::Read;
    let file = fs::File::open(format!("/proc/{}/fdinfo/{epoll}", pid.as_raw_nonzero()))?;
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
