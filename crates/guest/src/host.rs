//! The stream to the host: incoming and outgoing frames, both bounded.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wire::{FrameBuffer, FromGuest, ToGuest};

/// Number of queued bytes for the host beyond which no program's pipe is read.
const WAITING_BYTES_MAX: usize = 512 * 1024;
/// Buffer capacity that is kept while no frame is queued.
const KEPT_BYTES_MAX: usize = 16 * 1024;

pub(crate) struct Host {
    stream: OwnedFd,
    incoming: FrameBuffer,
    /// Frames that are not sent yet; the first may be sent in part.
    waiting: Vec<u8>,
    /// How many of the queued bytes are sent.
    sent: usize,
}

impl Host {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Self { stream, incoming: FrameBuffer::default(), waiting: Vec::new(), sent: 0 })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() - self.sent < WAITING_BYTES_MAX
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Queues a message. The messages of one turn are sent together, see [`Self::flush`].
    pub(crate) fn send(&mut self, message: &FromGuest) -> io::Result<()> {
        wire::encode_into(message, &mut self.waiting).map_err(io::Error::other)
    }

    /// Sends as much as the host accepts now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.waiting.len() {
            let rest = &self.waiting[self.sent..];
            match rustix::net::send(&self.stream, rest, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => {
                    self.waiting.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.waiting.clear();
        self.waiting.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        Ok(())
    }

    /// Reads what the host sent; `false` when the host is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        match rustix::io::read(&self.stream, rustix::buffer::spare_capacity(self.incoming.room())) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<ToGuest>> {
        self.incoming.next().map_err(io::Error::other)
    }
}
