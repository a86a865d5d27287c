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
    /// Frames that leave with the next one, see [`Self::hold`].
    held: Vec<u8>,
}

impl Host {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Self { stream, incoming: FrameBuffer::default(), waiting: Vec::new(), sent: 0, held: Vec::new() })
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
        self.release();
        wire::encode_into(message, &mut self.waiting).map_err(io::Error::other)
    }

    /// Queues a message that the host need not be woken for: it leaves before the next one, in the same turn.
    pub(crate) fn hold(&mut self, message: &FromGuest) -> io::Result<()> {
        wire::encode_into(message, &mut self.held).map_err(io::Error::other)
    }

    /// Sends the held messages with this turn.
    pub(crate) fn release(&mut self) {
        self.waiting.append(&mut self.held);
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_held_message_leaves_before_the_next_one_and_wakes_no_host() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut host = Host::new(ours.into()).unwrap();
        let (held, next) = (FromGuest::Listening { request: 1, listener: 0 }, FromGuest::Done { request: 2 });
        host.hold(&held).unwrap();
        host.flush().unwrap();
        assert!(!host.has_waiting(), "poll would report the stream at once");
        let mut bytes = [0; 4096];
        assert_eq!(theirs.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        host.send(&next).unwrap();
        host.flush().unwrap();
        let count = theirs.read(&mut bytes).unwrap();
        let mut frames = FrameBuffer::default();
        frames.extend(&bytes[..count]);
        assert_eq!(frames.next::<FromGuest>().unwrap(), Some(held));
        assert_eq!(frames.next::<FromGuest>().unwrap(), Some(next));
    }
}
