//! The links of one conversation: checks what the guest says about them, and moves bytes between guest and brokers.
//!
//! ```text
//!  guest: LinkOpened          broker drops the link, all sent            guest: LinkClosed
//!  -----------------> open ---------------------------------> closed ---------------------> free
//!                       |      host: LinkClosed                                               ^
//!                       +-- guest: LinkClosed --> closed by the guest -- the broker drops it -+
//!                                                                        host: LinkClosed
//! ```
//! A number is free only when both sides have closed the link, and the host closes it only when its broker has let go.
//! A broker that keeps a dead link therefore keeps one of the sandbox's 64 links, and no more.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::Instrument;
use wire::{CHUNK_BYTES_MAX, FromGuest, LINK_TAKEN_BYTES, LINK_WINDOW_BYTES, LINKS_MAX, ToGuest};

use super::link::{Bell, Shared};
use super::{Link, LinkCall, Reach, RunPause};
use crate::guest_client::{GuestError, GuestWriter};

/// Queued bytes for the guest beyond which no bytes of links are added. Orders are never delayed by more than this.
const QUEUED_BYTES_MAX: usize = 256 * 1024;
/// How long brokers may take to notice the end of a run. Those that do not are dropped.
const BROKER_PATIENCE: Duration = Duration::from_millis(100);

/// The guest said something about a link that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lie;

/// The links of one conversation.
pub(crate) struct LinkTable {
    reach: Arc<Reach>,
    bell: Arc<Bell>,
    /// By number.
    links: [Option<Box<Entry>>; LINKS_MAX as usize],
    /// Links that need to be served, one bit each.
    pending: u64,
    /// The number of the link that is served first.
    first: u32,
    /// The listeners that the guest has confirmed, one bit each.
    listening: u32,
    is_used: bool,
    brokers: JoinSet<()>,
}

/// The host's end of a link.
struct Entry {
    shared: Option<Arc<Shared>>,
    /// How many bytes may be sent to the guest.
    window: usize,
    /// How many bytes the guest may send.
    guest_window: usize,
    guest_ended: bool,
    guest_closed: bool,
    end_sent: bool,
    closed_sent: bool,
}

impl LinkTable {
    pub(crate) fn new(reach: Arc<Reach>) -> Self {
        Self {
            reach,
            bell: Arc::default(),
            links: [const { None }; LINKS_MAX as usize],
            pending: 0,
            first: 0,
            listening: 0,
            is_used: false,
            brokers: JoinSet::new(),
        }
    }

    /// The messages that ask the guest to listen. `request` is the number of the files of the run.
    pub(crate) fn listen(&self, request: u32) -> impl Iterator<Item = ToGuest> {
        let grants = (0_u32..).zip(&self.reach.grants);
        grants.map(move |(listener, grant)| ToGuest::Listen { request, listener, at: grant.at.clone() })
    }

    /// Whether the guest may still report that it cannot listen.
    pub(crate) fn may_fail_to_listen(&self) -> bool {
        !self.is_used && (self.listening.count_ones() as usize) < self.reach.grants.len()
    }

    /// The clock of the run.
    pub(crate) fn pause(&self) -> &RunPause {
        &self.reach.pause
    }

    /// Whether a program has opened a link.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Completes when a broker has something to send. Cancel safe.
    pub(crate) async fn rung(&self) {
        self.bell.rung().await;
    }

    /// Takes a message about links.
    pub(crate) fn take(&mut self, message: FromGuest) -> Result<(), Lie> {
        match message {
            FromGuest::Listening { listener, .. } => {
                let is_known = (listener as usize) < self.reach.grants.len();
                let is_new = is_known && self.listening & (1 << listener) == 0;
                self.listening |= if is_new { 1 << listener } else { 0 };
                is_new.then_some(()).ok_or(Lie)
            }
            FromGuest::LinkOpened { link, listener } => self.open(link, listener),
            FromGuest::Link { link, data } => self.known(link)?.take_data(&data),
            FromGuest::LinkTaken { link, bytes } => {
                let entry = self.known(link)?;
                let in_flight = LINK_WINDOW_BYTES - entry.window;
                let bytes = Some(bytes as usize).filter(|bytes| *bytes <= in_flight).ok_or(Lie)?;
                entry.window += bytes;
                self.pending |= 1 << link;
                Ok(())
            }
            FromGuest::LinkEnd { link } => {
                let entry = self.known(link)?;
                if std::mem::replace(&mut entry.guest_ended, true) {
                    return Err(Lie);
                }
                entry.change(|state| state.incoming_over = true);
                Ok(())
            }
            FromGuest::LinkClosed { link } => {
                let entry = self.known(link)?;
                entry.guest_closed = true;
                if entry.closed_sent {
                    // The guest may use the number again in its next message.
                    self.links[link as usize] = None;
                    return Ok(());
                }
                entry.change(|state| {
                    (state.incoming_over, state.is_closed) = (true, true);
                    state.outgoing = Vec::new();
                });
                self.pending |= 1 << link;
                Ok(())
            }
            _ => Err(Lie),
        }
    }

    /// A link that the guest has open.
    fn known(&mut self, link: u32) -> Result<&mut Entry, Lie> {
        let entry = self.links.get_mut(link as usize).and_then(Option::as_deref_mut);
        entry.filter(|entry| !entry.guest_closed).ok_or(Lie)
    }

    fn open(&mut self, number: u32, listener: u32) -> Result<(), Lie> {
        let is_listening = listener < u32::BITS && self.listening & (1 << listener) != 0;
        let slot = self.links.get_mut(number as usize).filter(|slot| slot.is_none()).ok_or(Lie)?;
        let grant = self.reach.grants.get(listener as usize).filter(|_| is_listening).ok_or(Lie)?;
        self.is_used = true;
        self.pending |= 1 << number;
        while let Some(ended) = self.brokers.try_join_next() {
            note(ended);
        }
        let Some(memory) = self.reach.memory.reserve() else {
            tracing::warn!("link_refused_for_memory");
            *slot = Some(Box::new(Entry::new(None)));
            return Ok(());
        };
        let shared = Shared::new(number, Arc::clone(&self.bell), memory);
        let call = LinkCall {
            caller: self.reach.caller.clone(),
            terms: Arc::clone(&self.reach.terms),
            at: grant.at.clone(),
            pause: Arc::clone(&self.reach.pause),
        };
        let (broker, link) = (Arc::clone(&grant.broker), Link::new(Arc::clone(&shared)));
        let serve = async move {
            if let Err(error) = broker.serve(link, call).await {
                // The kind only: the text may contain what a program sent.
                tracing::debug!(kind = %error.kind(), "link_failed");
            }
        };
        self.brokers.spawn(serve.in_current_span());
        *slot = Some(Box::new(Entry::new(Some(shared))));
        Ok(())
    }

    /// Whether links may add to the writer's queue.
    pub(crate) fn has_room(writer: &GuestWriter) -> bool {
        writer.queued_bytes() < QUEUED_BYTES_MAX
    }

    /// Queues what brokers have for the guest, as far as the windows and the queue allow.
    pub(crate) fn pump(&mut self, writer: &mut GuestWriter) -> Result<(), GuestError> {
        self.pending |= self.bell.take();
        // Beginning with another link each time: no link is always the last one before the queue is full.
        for number in (self.first..LINKS_MAX).chain(0..self.first) {
            if self.pending == 0 {
                break;
            }
            if self.pending & (1 << number) == 0 {
                continue;
            }
            if !Self::has_room(writer) {
                self.first = number;
                break;
            }
            self.pending &= !(1 << number);
            let Some(entry) = &mut self.links[number as usize] else { continue };
            entry.pump(number, writer)?;
            if entry.closed_sent && entry.guest_closed {
                self.links[number as usize] = None;
            }
        }
        Ok(())
    }

    /// Ends all links: brokers are told, and dropped if they do not return soon.
    pub(crate) async fn cut(mut self) {
        for entry in self.links.iter().flatten() {
            entry.change(|state| state.is_cut = true);
        }
        let all = async {
            while let Some(ended) = self.brokers.join_next().await {
                note(ended);
            }
        };
        if tokio::time::timeout(BROKER_PATIENCE, all).await.is_err() {
            tracing::warn!(count = self.brokers.len(), "link_brokers_dropped");
        }
    }
}

/// Logs a broker that failed. A task that was dropped is none.
fn note(ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("link_broker_panicked");
    }
}

impl Entry {
    fn new(shared: Option<Arc<Shared>>) -> Self {
        Self {
            shared,
            window: LINK_WINDOW_BYTES,
            guest_window: LINK_WINDOW_BYTES,
            guest_ended: false,
            guest_closed: false,
            end_sent: false,
            closed_sent: false,
        }
    }

    fn change(&self, change: impl FnOnce(&mut super::link::State)) {
        if let Some(shared) = &self.shared {
            shared.change(change);
        }
    }

    fn take_data(&mut self, data: &[u8]) -> Result<(), Lie> {
        let is_allowed = !self.guest_ended && (1..=CHUNK_BYTES_MAX).contains(&data.len());
        self.guest_window = self.guest_window.checked_sub(data.len()).filter(|_| is_allowed).ok_or(Lie)?;
        self.change(|state| {
            if !state.is_dropped {
                // Without the doubling of capacity: the memory of a link is reserved exactly.
                state.incoming.reserve_exact(data.len());
                state.incoming.extend(data);
            }
        });
        Ok(())
    }

    /// Queues what there is for the guest about this link.
    fn pump(&mut self, link: u32, writer: &mut GuestWriter) -> Result<(), GuestError> {
        let Some(shared) = &self.shared else {
            return self.close(link, writer);
        };
        let window = self.window;
        let (taken, data, is_ended, is_dropped) = shared.change(|state| {
            let taken = if state.taken >= LINK_TAKEN_BYTES { std::mem::take(&mut state.taken) } else { 0 };
            let rest = state.outgoing.split_off(state.outgoing.len().min(window));
            let data = std::mem::replace(&mut state.outgoing, rest);
            let is_ended = state.outgoing.is_empty() && (state.outgoing_over || state.is_dropped);
            (taken, data, is_ended, state.is_dropped)
        });
        self.guest_window += taken;
        if taken > 0 && !self.guest_closed {
            let bytes = u32::try_from(taken).unwrap_or(u32::MAX);
            writer.queue(&ToGuest::LinkTaken { link, bytes })?;
        }
        if !data.is_empty() && !self.guest_closed {
            self.window -= data.len();
            writer.queue(&ToGuest::Link { link, data })?;
        }
        if is_ended && !self.end_sent && !self.guest_closed {
            self.end_sent = true;
            writer.queue(&ToGuest::LinkEnd { link })?;
        }
        if is_ended && is_dropped { self.close(link, writer) } else { Ok(()) }
    }

    fn close(&mut self, link: u32, writer: &mut GuestWriter) -> Result<(), GuestError> {
        if std::mem::replace(&mut self.closed_sent, true) {
            return Ok(());
        }
        // The memory is given back now: what the guest still sends is dropped.
        self.shared = None;
        writer.queue(&ToGuest::LinkClosed { link })
    }
}
