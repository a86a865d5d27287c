//! What a jail reports to the host while it is built, over a socket that is closed before the guest starts.
//!
//! The spawner sends `Cloned`, and the clone itself sends `Built` or `Failed`. The native backend reads them.
//! Our own code sends all of it before any program runs, but the host still verifies what it can observe.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};

/// The longest report.
pub const RECEIVE_BYTES_MAX: usize = 4096;

const GO: &[u8] = b"go";
const GROUPS: &[u8] = b"groups";
/// The maximum number of file descriptors in one message.
const DESCRIPTORS_MAX: usize = 2 + crate::FOLDERS_MAX;

/// The longest reason in words, so that a report never exceeds its maximum length.
const REASON_CHARACTERS_MAX: usize = 500;

/// A build step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailError {
    /// The step's name.
    pub step: String,
    /// Why it failed.
    pub reason: Reason,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The operating system's error number.
    Errno(i32),
    /// A description by the step itself: no system call failed.
    Words(String),
}

impl JailError {
    pub(crate) fn new(step: &str, error: &io::Error) -> Self {
        let reason = match error.raw_os_error() {
            Some(errno) => Reason::Errno(errno),
            None => Reason::Words(error.to_string().chars().take(REASON_CHARACTERS_MAX).collect()),
        };
        Self { step: step.to_owned(), reason }
    }

    /// The operating system's error number, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self.reason {
            Reason::Errno(errno) => Some(errno),
            Reason::Words(_) => None,
        }
    }

    /// The reason as an error of this process.
    pub fn source(&self) -> io::Error {
        match &self.reason {
            Reason::Errno(errno) => io::Error::from_raw_os_error(*errno),
            Reason::Words(words) => io::Error::other(words.clone()),
        }
    }
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The process exists. The message carries a pidfd.
    Cloned {
        /// How long the clone took.
        clone_us: u32,
    },
    /// All walls are in place. The message carries a file descriptor of the writable space.
    Built {
        /// Step and duration in microseconds.
        steps_us: Vec<(String, u32)>,
        /// ABI version of Landlock in force, 0 if the kernel has none.
        landlock_abi: u32,
    },
    /// A zygote process has its interpreter ready and accepts requests.
    Ready,
    /// A layer is visible in a sandbox.
    Attached,
    /// The jail could not be built, or the layer not attached; the process is gone.
    Failed(JailError),
}

pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &Message,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    send_with_descriptors(socket, &bytes, descriptor.as_slice())
}

pub(crate) fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives bytes and a few file descriptors. Zero bytes mean that the other side is gone.
pub(crate) fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(bytes)];
    let message = rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for entry in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = entry {
            descriptors.extend(received);
        }
    }
    Ok((message.bytes, descriptors))
}

/// Reads one report; `None` when the process is gone. A non-blocking socket returns `WouldBlock`.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0_u8; RECEIVE_BYTES_MAX];
    let (length, mut descriptors) = receive_with_descriptors(socket, &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    let message = postcard::from_bytes(&bytes[..length]).map_err(io::Error::other)?;
    Ok(Some((message, descriptors.pop())))
}

/// Lets a verified jail become its guest.
pub fn send_go(socket: impl AsFd) -> io::Result<()> {
    send_with_descriptors(socket.as_fd(), GO, &[])
}

/// Sends a jail under construction the open `tasks` files that it writes itself into.
pub fn send_groups(socket: impl AsFd, tasks: &[OwnedFd]) -> io::Result<()> {
    let tasks: Vec<BorrowedFd<'_>> = tasks.iter().map(AsFd::as_fd).collect();
    send_with_descriptors(socket.as_fd(), GROUPS, &tasks)
}

/// Waits for those files.
pub(crate) fn wait_for_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut bytes = [0_u8; 8];
    let (length, tasks) = receive_with_descriptors(socket, &mut bytes)?;
    if &bytes[..length] == GROUPS { Ok(tasks) } else { Err(io::Error::other("the host is gone")) }
}

/// Waits for the host's consent. An error means that the host is gone or refused.
pub(crate) fn wait_for_go(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut bytes = [0_u8; 8];
    let (length, _) = receive_with_descriptors(socket, &mut bytes)?;
    if &bytes[..length] == GO { Ok(()) } else { Err(io::Error::other("the host did not agree")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_without_an_error_number_says_why_in_words() {
        let told = JailError::new("procfs", &io::Error::other("a mask is missing"));
        assert_eq!((told.errno(), told.source().to_string()), (None, "a mask is missing".to_owned()));
        let told = JailError::new("procfs", &io::Error::from(io::ErrorKind::InvalidInput));
        assert_eq!(told.source().to_string(), "invalid input parameter");
        let told = JailError::new("clone", &io::Error::from_raw_os_error(1));
        assert_eq!((told.errno(), told.source().raw_os_error()), (Some(1), Some(1)));
    }

    #[test]
    fn a_long_reason_fits_into_a_report() {
        let error = JailError::new("binds", &io::Error::other("\u{1f980}".repeat(5000)));
        let report = postcard::to_stdvec(&Message::Failed(error)).unwrap();
        assert!(report.len() <= RECEIVE_BYTES_MAX);
    }
}
