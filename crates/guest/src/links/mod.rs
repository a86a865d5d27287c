//! Links: connections of programs to the guest's listeners, carried to the host as windowed messages.
//!
//! [`crate::Guest`] calls it from its poll loop. What must hold:
//!
//! - Memory is bounded: the guest holds at most one window of bytes for each link.
//! - A link without window, and every link while the host has no room, is not read. The program then blocks on its
//!   socket.
//! - In one turn all links together read a fixed number of bytes, and the next turn begins with the link after the last
//!   one served. Output and the host's messages are handled in every turn, before the links.
//! - A listener is polled only while another link is allowed. The connections beyond wait in the kernel's queue.
//! - Every descriptor is close-on-exec. A copy of the warm interpreter closes all of them (`sys::copy`).

mod link;
mod listener;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::Resource;
use wire::{CHUNK_BYTES_MAX, FromGuest, LINKS_MAX, LISTENERS_MAX, ListenAt};

use self::link::Link;
use self::listener::Listener;
use crate::host::Host;

/// How many bytes all links together read in one turn.
const TURN_BYTES: usize = 2 * CHUNK_BYTES_MAX;
/// The least that one read costs of that: many short pieces take as long as a few long ones.
const READ_COST_BYTES: usize = 4096;
/// How many connections one listener accepts in one turn.
const TURN_ACCEPTS: usize = 16;
/// How long a listener rests when the kernel refuses a connection for want of descriptors or memory.
const REST: Duration = Duration::from_millis(50);
/// Descriptors that the guest itself holds: standard streams, those of the jail, the signals.
const OWN_DESCRIPTORS: usize = 8;
/// Descriptors of one open process.
const PROCESS_DESCRIPTORS: usize = 4;
/// Descriptors that stay free for what the guest does besides: start a process, read a file, look at a process.
const RESERVED_DESCRIPTORS: usize = 12;

/// The listeners and links of a sandbox.
#[derive(Default)]
pub(crate) struct Links {
    listeners: BTreeMap<u32, Listener>,
    open: BTreeMap<u32, Link>,
    /// The number of the link that is served first in the next turn.
    first: u32,
    /// Until when no connection is accepted, because the kernel refused one.
    resting: Option<Instant>,
}

/// A descriptor of this module that poll reports on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkReady {
    Listener(u32),
    Link(u32),
}

impl Links {
    /// Whether nothing listens and no link is open. Nothing in this module costs anything then.
    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.open.is_empty()
    }

    pub(crate) fn listen(&mut self, number: u32, at: &ListenAt) -> io::Result<()> {
        if number >= LISTENERS_MAX || self.listeners.contains_key(&number) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.listeners.insert(number, Listener::open(at)?);
        Ok(())
    }

    /// Closes every listener and link.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Passes bytes of the host to a program.
    pub(crate) fn receive(&mut self, number: u32, data: &[u8], host: &mut Host) -> io::Result<()> {
        self.with(number, host, |link| link.receive(data))
    }

    /// The host took bytes of a link.
    pub(crate) fn taken(&mut self, number: u32, bytes: u32, host: &mut Host) -> io::Result<()> {
        self.with(number, host, |link| link.widen(bytes as usize))
    }

    /// The host sends no more bytes on a link.
    pub(crate) fn host_ended(&mut self, number: u32, host: &mut Host) -> io::Result<()> {
        self.with(number, host, Link::host_ended)
    }

    /// The host closed its end of a link.
    pub(crate) fn host_closed(&mut self, number: u32, host: &mut Host) -> io::Result<()> {
        self.with(number, host, Link::host_closed)
    }

    /// Acts on a link, then reports what follows from that. A link that the guest does not have is no error: the host
    /// is about to hear that it is closed.
    fn with(&mut self, number: u32, host: &mut Host, work: impl FnOnce(&mut Link)) -> io::Result<()> {
        let Some(link) = self.open.get_mut(&number) else { return Ok(()) };
        work(link);
        link.report(number, host)?;
        if link.is_over() {
            self.open.remove(&number);
        }
        Ok(())
    }

    /// What to poll. `open_processes` hold descriptors too.
    pub(crate) fn interests(
        &self,
        host_has_room: bool,
        open_processes: usize,
    ) -> impl Iterator<Item = (LinkReady, BorrowedFd<'_>, PollFlags)> {
        let accepts = host_has_room && !self.rests() && self.may_accept(open_processes);
        let listeners = self.listeners.iter().filter(move |_| accepts);
        let listeners = listeners
            .map(|(number, listener)| (LinkReady::Listener(*number), listener.as_fd(), PollFlags::IN));
        let links = self.open.iter().filter_map(move |(number, link)| {
            let (socket, flags) = link.interest(host_has_room)?;
            Some((LinkReady::Link(*number), socket, flags))
        });
        listeners.chain(links)
    }

    /// How long until a resting listener accepts again.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.resting
            .map(|until| until.saturating_duration_since(Instant::now()))
            .filter(|rest| !rest.is_zero())
    }

    fn rests(&self) -> bool {
        self.pause().is_some()
    }

    fn may_accept(&self, open_processes: usize) -> bool {
        let sockets = self.open.values().filter(|link| link.is_connected()).count();
        let used = OWN_DESCRIPTORS
            + RESERVED_DESCRIPTORS
            + self.listeners.len()
            + open_processes.saturating_mul(PROCESS_DESCRIPTORS);
        // One link is allowed in any case. The kernel decides whether it gets a descriptor.
        let allowed = descriptors_max().saturating_sub(used).max(1);
        self.open.len() < LINKS_MAX as usize && sockets < allowed
    }

    /// Accepts connections of a listener, as many as are allowed.
    pub(crate) fn accept(&mut self, number: u32, open_processes: usize, host: &mut Host) -> io::Result<()> {
        self.resting = None;
        for _ in 0..TURN_ACCEPTS {
            let Some(listener) = self.listeners.get(&number) else { return Ok(()) };
            if !self.may_accept(open_processes) {
                return Ok(());
            }
            match listener.accept() {
                Ok(None) => return Ok(()),
                Ok(Some(socket)) => {
                    let Some(link) = (0..LINKS_MAX).find(|link| !self.open.contains_key(link)) else {
                        return Ok(());
                    };
                    self.open.insert(link, Link::new(socket));
                    host.send(&FromGuest::LinkOpened { link, listener: number })?;
                }
                // For example EMFILE. Poll would report the connection again at once.
                Err(_) => {
                    self.resting = Some(Instant::now() + REST);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Serves the links that poll reported: first writes, then reads within the budget of one turn.
    pub(crate) fn serve(&mut self, mut ready: Vec<(u32, PollFlags)>, host: &mut Host) -> io::Result<()> {
        let first = self.first;
        ready.sort_unstable_by_key(|(number, _)| (*number < first, *number));
        for (number, flags) in &ready {
            self.with(*number, host, |link| link.write_ready(*flags))?;
        }
        let mut room = TURN_BYTES;
        let mut is_progress = true;
        while is_progress && room > 0 && host.has_room() {
            is_progress = false;
            for (number, _) in &ready {
                let Some(link) = self.open.get_mut(number).filter(|_| room > 0) else { continue };
                let data = link.read(room);
                self.first = number + 1;
                if !data.is_empty() {
                    is_progress = true;
                    room = room.saturating_sub(data.len().max(READ_COST_BYTES));
                    host.send(&FromGuest::Link { link: *number, data })?;
                }
                self.with(*number, host, |_| ())?;
            }
        }
        Ok(())
    }
}

/// How many descriptors this process may have, and how many it may poll. The host lowers it at the lease, see
/// getrlimit(2) and poll(2).
pub(crate) fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}
