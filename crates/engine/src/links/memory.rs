//! The host's memory for links: one maximum for all links of an engine.
//!
//! Every link may hold a window of bytes that its broker has not read, and one piece that the guest has not taken. The
//! engine reserves both when the link opens, so that the maximum holds whatever guests and brokers do. A link for which
//! nothing is left is closed at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wire::LINK_WINDOW_BYTES;

/// How many bytes of a broker wait for the guest.
pub(super) const OUTGOING_BYTES_MAX: usize = wire::CHUNK_BYTES_MAX;
/// What one link may hold.
const LINK_BYTES: usize = LINK_WINDOW_BYTES + OUTGOING_BYTES_MAX;
/// The most memory that the links of all runs of an engine hold together: 819 links.
pub const LINK_MEMORY_BYTES_MAX: usize = 256 << 20;

/// What is left.
pub(crate) struct LinkMemory(AtomicUsize);

/// The memory of one link. Dropping it gives it back.
pub(super) struct Reservation(Arc<LinkMemory>);

impl Default for LinkMemory {
    fn default() -> Self {
        Self::new(LINK_MEMORY_BYTES_MAX)
    }
}

impl LinkMemory {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(AtomicUsize::new(bytes_max))
    }

    /// Memory for one link, if there is some.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<Reservation> {
        let reserve = |left: usize| left.checked_sub(LINK_BYTES);
        let reserved = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        reserved.is_ok().then(|| Reservation(Arc::clone(self)))
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.0.fetch_add(LINK_BYTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_bounded_and_given_back() {
        let memory = Arc::new(LinkMemory::new(2 * LINK_BYTES + 1));
        let (first, second) = (memory.reserve(), memory.reserve());
        assert!(first.is_some() && second.is_some() && memory.reserve().is_none());
        drop(first);
        assert!(memory.reserve().is_some());
        drop(second);
        assert_eq!(memory.left(), 2 * LINK_BYTES + 1);
    }
}
