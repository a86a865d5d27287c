//! Moves the file descriptors that stay to fixed numbers, and closes all others.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The largest number of a file descriptor, which is a non-negative `int`. gVisor refuses a larger one with EINVAL.
const LAST_DESCRIPTOR: u32 = i32::MAX.unsigned_abs();

/// Moves a file descriptor to a fixed number, close-on-exec. A descriptor that had this number is closed.
pub(crate) fn place(descriptor: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() == number {
        return Ok(descriptor);
    }
    // SAFETY: dup3 takes no pointers; the target is a number this process alone manages.
    let result = unsafe { libc::dup3(descriptor.as_raw_fd(), number, libc::O_CLOEXEC) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: dup3 just made this descriptor, and its owner is the value returned here.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every file descriptor from `first` on. See close_range(2).
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers. Owners of the closed descriptors are never used again: callers leak them.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, LAST_DESCRIPTOR, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
