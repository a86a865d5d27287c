//! Standard input on its way to a program: queued up to the window, written as the program takes it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use wire::STDIN_WINDOW_BYTES;

use crate::sys;
use crate::waiting::FileId;

/// The writing end of a pipe or a terminal, and the bytes that it has not taken yet.
pub(crate) struct Stdin {
    pipe: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    is_ended: bool,
}

impl Stdin {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), waiting: VecDeque::new(), is_ended: false }
    }

    /// Queues bytes. More than the window is an error of the host, and they are dropped.
    pub(crate) fn send(&mut self, data: Vec<u8>) {
        if !self.is_ended && self.waiting.len() + data.len() <= STDIN_WINDOW_BYTES {
            self.waiting.extend(data);
        }
    }

    /// Writes queued bytes. Returns how many were written, or dropped because no program reads them any more.
    pub(crate) fn flush(&mut self) -> u32 {
        let taken = flush(&mut self.pipe, &mut self.waiting);
        if self.is_ended && self.waiting.is_empty() {
            self.pipe = None;
        }
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    /// Marks the end. The program sees it after the queued bytes.
    pub(crate) fn end(&mut self) {
        self.is_ended = true;
        if self.waiting.is_empty() {
            self.pipe = None;
        }
    }

    /// What to poll for room, if bytes are queued.
    pub(crate) fn interest(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }

    /// The pipe, if the program has read everything and more may come.
    pub(crate) fn drained(&self) -> Option<FileId> {
        let pipe = self.pipe.as_ref().filter(|_| self.waiting.is_empty() && !self.is_ended)?;
        if sys::has_readable(pipe) { None } else { FileId::of(pipe).ok() }
    }
}

/// Writes as much as the other side accepts. When it is gone, the queued bytes are dropped.
pub(crate) fn flush(slot: &mut Option<OwnedFd>, waiting: &mut VecDeque<u8>) -> usize {
    let mut taken = 0;
    while let (Some(descriptor), false) = (slot.as_ref(), waiting.is_empty()) {
        match rustix::io::write(descriptor, waiting.as_slices().0) {
            Ok(count) => {
                waiting.drain(..count);
                taken += count;
            }
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => *slot = None,
        }
    }
    if slot.is_none() {
        taken += waiting.len();
        waiting.clear();
    }
    taken
}
