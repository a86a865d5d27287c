//! The part of a conversation that carries links: grants of the run, messages about links, and the end of both.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::{FromGuest, ToGuest};

use super::{Conversation, Ended, GuestChannel, LINKS};
use crate::guest_client::GuestError;
use crate::links::{LinkTable, Reach};
use crate::verdict::End;

/// A guest confirms the end of links at once. A guest that takes longer is lost.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The links of a conversation.
#[derive(Default)]
pub(super) enum Links {
    /// Nothing was granted. A guest that speaks of links lies.
    #[default]
    None,
    /// The guest listens, or is about to.
    Open(Box<LinkTable>),
    /// The brokers are gone. What the guest still says about links is dropped.
    Cut,
    /// The guest was told to stop and has not confirmed it.
    Ending,
    /// The guest has confirmed that nothing listens.
    Ended,
}

impl Links {
    /// Completes when a broker has something to send. Cancel safe.
    pub(super) async fn rung(&self) {
        match self {
            Self::Open(table) => table.rung().await,
            _ => std::future::pending().await,
        }
    }

    pub(super) fn are_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// When the run ends whose time is over now; `None` if that is now. A human may be asked about something.
    pub(super) fn prolonged(&self, deadline: Instant) -> Option<Instant> {
        match self {
            Self::Open(table) => table.pause().prolonged(deadline),
            _ => None,
        }
    }

    /// Whether a program has opened a link, and so may have had effects outside.
    pub(super) fn are_used(&self) -> bool {
        matches!(self, Self::Open(table) if table.is_used())
    }
}

impl Conversation<'_> {
    /// Queues the listeners that the run was granted. Must precede the order: if the guest cannot listen, it drops the
    /// order.
    pub(crate) fn grant(&mut self, reach: Option<&Arc<Reach>>) -> Result<(), GuestError> {
        let Some(reach) = reach else { return Ok(()) };
        let table = LinkTable::new(Arc::clone(reach));
        table.listen(self.placed).try_for_each(|listen| self.channel.writer.queue(&listen))?;
        self.links = Links::Open(Box::new(table));
        Ok(())
    }

    /// Handles a message about links. A guest that lies is lost, like one that breaks the protocol.
    pub(super) fn take_link(&mut self, message: FromGuest) -> Option<Ended> {
        let is_honest = match &mut self.links {
            Links::Open(table) => table.take(message).is_ok(),
            Links::Cut | Links::Ending => true,
            Links::None | Links::Ended => false,
        };
        (!is_honest).then_some(Ended::Limit(End::Lost))
    }

    /// Handles the guest's answer that it cannot listen. It is a lie where nothing was granted, or once all listeners
    /// were confirmed or used: the program has begun.
    pub(super) fn take_listen_failure(&self, request: u32, errno: i32) -> Option<Ended> {
        let is_honest = matches!(&self.links, Links::Open(table) if table.may_fail_to_listen());
        match &self.links {
            Links::Cut | Links::Ending => None,
            _ if is_honest && request == self.placed => Some(Ended::Over(End::Unlistened(errno))),
            _ => Some(Ended::Limit(End::Lost)),
        }
    }

    /// Queues what brokers have for the guest.
    pub(super) fn pump_links(&mut self) {
        if let Links::Open(table) = &mut self.links {
            // A piece always fits a frame.
            table.pump(&mut self.channel.writer).ok();
        }
    }

    /// Takes the answer to the end of links.
    pub(super) fn links_ended(&mut self) {
        if matches!(self.links, Links::Ending) {
            self.links = Links::Ended;
        }
    }

    /// Ends the work of all brokers. The guest is not told.
    pub(crate) async fn cut_links(&mut self) {
        if self.links.are_open()
            && let Links::Open(table) = std::mem::replace(&mut self.links, Links::Cut)
        {
            table.cut().await;
        }
    }

    /// Ends the work of all brokers, and asks the guest to stop listening.
    pub(super) async fn ask_to_end_links(&mut self) {
        self.cut_links().await;
        if matches!(self.links, Links::Cut) {
            self.links = Links::Ending;
            // A short message always fits a frame.
            self.channel.writer.queue(&ToGuest::EndLinks { request: LINKS }).ok();
            self.channel.writer.write_queued_now();
        }
    }

    /// Takes the grants of the run back. Returns whether the guest has confirmed it, at once if nothing was granted.
    pub(crate) async fn end_links(&mut self) -> bool {
        self.ask_to_end_links().await;
        if !matches!(self.links, Links::Ending) {
            return true;
        }
        let end = async {
            while matches!(self.links, Links::Ending) {
                let GuestChannel { reader, writer, .. } = &mut self.channel;
                let message = tokio::select! {
                    biased;
                    message = reader.next() => message.ok()?,
                    written = writer.write_queued(), if writer.has_queued() => {
                        written.ok()?;
                        continue;
                    }
                };
                // The run is over already. Output is kept, and a process that ended is forgotten.
                self.take(message);
                self.channel.writer.write_queued_now();
                if let Some(audience) = &mut self.audience {
                    audience.give_up();
                }
            }
            Some(())
        };
        matches!(tokio::time::timeout(END_PATIENCE, end).await, Ok(Some(())))
    }
}
