//! One link: the guest's end of a program's connection, and what is in flight to and from the host.
//!
//! ```text
//!            read: end of file            host: LinkEnd, all written
//!  open ------------------------> program ended ------------------------> closed (socket gone, LinkClosed sent)
//!    |                                                                       ^
//!    +-- host: LinkClosed, all written --- or the program cannot be reached -+
//! ```
//! The entry stays until the host has sent `LinkClosed` as well; until then its number is taken.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use wire::{CHUNK_BYTES_MAX, FromGuest, LINK_TAKEN_BYTES, LINK_WINDOW_BYTES};

use crate::host::Host;

pub(super) struct Link {
    /// `None` once the guest has closed its end.
    socket: Option<OwnedFd>,
    /// Bytes of the host that the program has not taken yet; at most one window.
    waiting: VecDeque<u8>,
    /// How many bytes may be sent to the host.
    window: usize,
    /// Bytes that have left the guest and are not reported yet.
    taken: usize,
    program: Direction,
    host: Direction,
    /// Whether the program can take no more bytes.
    is_unwritable: bool,
    host_closed: bool,
    closed_told: bool,
}

/// How many bytes that nobody wants any more are read before a connection is closed.
const DISCARD_BYTES_MAX: usize = 1 << 20;

/// The state of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Open,
    /// The sender has ended it. What it sent before may still wait.
    Ending,
    /// The receiver has been told.
    Ended,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Some(socket),
            waiting: VecDeque::new(),
            window: LINK_WINDOW_BYTES,
            taken: 0,
            program: Direction::Open,
            host: Direction::Open,
            is_unwritable: false,
            host_closed: false,
            closed_told: false,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether both sides have closed their ends.
    pub(super) fn is_over(&self) -> bool {
        self.closed_told && self.host_closed
    }

    /// What to poll for. A link that can neither be read nor written is left out, because poll reports a program that
    /// is gone at once, again and again.
    pub(super) fn interest(&self, host_has_room: bool) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let socket = self.socket.as_ref()?;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, !self.waiting.is_empty());
        flags.set(PollFlags::IN, host_has_room && self.may_read());
        // After the program's end of file only its disappearance is of interest.
        let is_ended = self.program != Direction::Open;
        (is_ended || !flags.is_empty()).then(|| (socket.as_fd(), flags))
    }

    fn may_read(&self) -> bool {
        self.program == Direction::Open && !self.host_closed && self.window > 0
    }

    /// Takes bytes of the host. Bytes beyond the window are an error of the host, and they are dropped.
    pub(super) fn receive(&mut self, data: &[u8]) {
        if self.host != Direction::Open || self.waiting.len() + data.len() > LINK_WINDOW_BYTES {
            return;
        }
        let sent = if self.waiting.is_empty() { self.send(data) } else { 0 };
        self.taken += sent;
        self.waiting.extend(&data[sent..]);
    }

    /// Sends as much as the program takes now. When it can take no more ever, all of it counts as sent.
    fn send(&mut self, data: &[u8]) -> usize {
        let mut sent = 0;
        while let (Some(socket), false) = (self.socket.as_ref(), self.is_unwritable) {
            if sent == data.len() {
                return sent;
            }
            match rustix::net::send(socket, &data[sent..], SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN) => return sent,
                Err(Errno::INTR) => {}
                Err(_) => self.is_unwritable = true,
            }
        }
        data.len()
    }

    pub(super) fn widen(&mut self, bytes: usize) {
        self.window = self.window.saturating_add(bytes).min(LINK_WINDOW_BYTES);
    }

    pub(super) fn host_ended(&mut self) {
        if self.host == Direction::Open {
            self.host = Direction::Ending;
        }
    }

    pub(super) fn host_closed(&mut self) {
        self.host_ended();
        self.host_closed = true;
        if let Some(socket) = &self.socket {
            // The program may block in a write that no side reads any more.
            rustix::net::shutdown(socket, Shutdown::Read).ok();
        }
    }

    /// Poll reported the link: writes what waits.
    pub(super) fn write_ready(&mut self, flags: PollFlags) {
        while !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            let sent = self.send(waiting.as_slices().0);
            waiting.drain(..sent);
            self.waiting = waiting;
            self.taken += sent;
            if sent == 0 {
                break;
            }
        }
        if self.waiting.is_empty() {
            self.waiting.shrink_to(CHUNK_BYTES_MAX);
        }
        let is_gone = flags.intersects(PollFlags::HUP | PollFlags::ERR);
        if is_gone && self.program != Direction::Open {
            self.is_unwritable = true;
        }
    }

    /// Reads the next bytes of the program, at most `bytes_max`. Empty when there is nothing to read now.
    pub(super) fn read(&mut self, bytes_max: usize) -> Vec<u8> {
        let (Some(socket), true) = (&self.socket, self.may_read()) else { return Vec::new() };
        let mut data = Vec::with_capacity(CHUNK_BYTES_MAX.min(bytes_max).min(self.window));
        match rustix::net::recv(socket, rustix::buffer::spare_capacity(&mut data), RecvFlags::empty()) {
            Ok((_, 0)) => self.program = Direction::Ending,
            Ok(_) => self.window -= data.len().min(self.window),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The connection was reset.
            Err(_) => (self.program, self.is_unwritable) = (Direction::Ending, true),
        }
        data
    }

    /// Tells the host what has happened to the link, and closes what is over.
    pub(super) fn report(&mut self, number: u32, host: &mut Host) -> io::Result<()> {
        if self.closed_told {
            return Ok(());
        }
        if self.is_unwritable {
            self.taken += self.waiting.len();
            self.waiting = VecDeque::new();
        }
        if self.taken >= LINK_TAKEN_BYTES {
            let bytes = u32::try_from(self.taken).unwrap_or(u32::MAX);
            self.taken = 0;
            host.send(&FromGuest::LinkTaken { link: number, bytes })?;
        }
        if self.program == Direction::Ending {
            self.program = Direction::Ended;
            host.send(&FromGuest::LinkEnd { link: number })?;
        }
        if self.host == Direction::Ending && self.waiting.is_empty() {
            self.host = Direction::Ended;
            if let Some(socket) = &self.socket {
                rustix::net::shutdown(socket, Shutdown::Write).ok();
            }
        }
        let nothing_comes = self.program == Direction::Ended || self.host_closed;
        let nothing_goes = self.is_unwritable || self.host == Direction::Ended;
        if nothing_comes && nothing_goes {
            self.discard();
            (self.socket, self.closed_told) = (None, true);
            host.send(&FromGuest::LinkClosed { link: number })?;
        }
        Ok(())
    }

    /// Reads what the program has sent and no side wants. A TCP connection that is closed with unread bytes is reset,
    /// and the program would lose the last bytes of the host. See RFC 2525, 2.17.
    fn discard(&self) {
        let Some(socket) = self.socket.as_ref().filter(|_| self.program == Direction::Open) else { return };
        let mut bytes = [0_u8; 4096];
        for _ in 0..DISCARD_BYTES_MAX / bytes.len() {
            match rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((_, 1..)) | Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}
