//! The stream to the host: frames in, frames out, both bounded.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wire::{FrameBuffer, FromGuest, ToGuest};

/// Frames waiting for the host beyond which no program's pipe is read.
const WAITING_BYTES_MAX: usize = 512 * 1024;
const READ_BYTES: usize = 64 * 1024;

pub(crate) struct Host {
    stream: OwnedFd,
    incoming: FrameBuffer,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// How much of the first waiting frame is sent.
    sent: usize,
}

impl Host {
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Self {
            stream,
            incoming: FrameBuffer::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting_bytes < WAITING_BYTES_MAX
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Queues a message; it leaves as soon as the host reads.
    pub(crate) fn send(&mut self, message: &FromGuest) -> io::Result<()> {
        let frame = wire::encode(message).map_err(io::Error::other)?;
        self.waiting_bytes += frame.len();
        self.waiting.push_back(frame);
        self.flush()
    }

    /// Sends what the host will take now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(frame) = self.waiting.front() {
            match rustix::net::send(&self.stream, &frame[self.sent..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if self.sent == frame.len() {
                self.waiting_bytes -= frame.len();
                self.sent = 0;
                self.waiting.pop_front();
            }
        }
        Ok(())
    }

    /// Reads what the host sent; `false` when it is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0_u8; READ_BYTES];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.incoming.extend(&bytes[..count]);
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<ToGuest>> {
        self.incoming.next().map_err(io::Error::other)
    }
}
