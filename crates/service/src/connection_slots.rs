//! Connection slots: the number of concurrent connections, and which connection is closed when there are too
//! many.
//!
//! ```text
//! accept -> Unproven -- a request shows the token --> Proven (for as long as the connection lasts)
//! ```
//! - A new connection is unproven. When all slots are taken, it gets the slot of another unproven connection:
//!   the one idle longest, or the oldest if all of them have a request in progress.
//! - A connection that proves its identity may get the slot of the proven connection that is idle longest.
//! - A proven connection with a request in progress always keeps its slot.
//!
//! Proven connections never have all slots ([`unproven_min`]), so the next caller can always connect and show
//! its token. Unproven connections use the rest. A flood of them has a bounded cost and closes only unproven
//! connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

/// Default number of concurrent connections.
pub const SLOTS_MAX: usize = 2048;
/// Connections get one file descriptor in this many. Runs, which need several each, and files use the others.
const DESCRIPTORS_PER_SLOT: usize = 2;
/// One slot in this many is never given to a proven connection.
const UNPROVEN_SHARE: usize = 8;

/// All slots of a server.
pub(crate) struct ConnectionSlots {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    slots: BTreeMap<u64, SlotState>,
}

struct SlotState {
    standing: Standing,
    requests: usize,
    idle_since: Instant,
    leave: CancellationToken,
}

/// Whether a connection has proven its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproven,
    Proven,
}

/// Error: every slot for proven connections belongs to one with a request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllBusy;

/// One connection's slot; released when dropped.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    leave: CancellationToken,
}

/// A request in progress on a slot.
pub(crate) struct Busy {
    slot: Arc<ConnectionSlot>,
}

impl ConnectionSlots {
    /// Takes the wanted number of slots, or fewer if the process's limit of file descriptors requires it.
    /// Raises the soft limit first, because a shell starts with 1024. Without that, or with one slot per
    /// descriptor, idle connections would block every other caller and every run.
    pub(crate) fn within_descriptors(wanted: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let descriptors = (wanted.saturating_mul(DESCRIPTORS_PER_SLOT)) as u64;
        let possible = limit.maximum.map_or(descriptors, |maximum| maximum.min(descriptors));
        let mut current = limit.current.unwrap_or(descriptors);
        let raised = Rlimit { current: Some(possible), ..limit };
        if current < possible && setrlimit(Resource::Nofile, raised).is_ok() {
            current = possible;
        }
        let most = slots_for(current).min(wanted);
        if most < wanted {
            tracing::warn!(connections_max = wanted, possible = most, "too_few_descriptors");
        }
        Self::new(most)
    }

    /// Creates that many slots, and at least one of each standing.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(2), taken: Mutex::default() }
    }

    /// Takes a slot for a new connection, if necessary from another unproven connection.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Arc<ConnectionSlot>> {
        let mut taken = self.lock();
        if taken.slots.len() >= self.most {
            let unproven = taken.slots.iter().filter(|(_, place)| place.standing == Standing::Unproven);
            let (&first, _) = unproven.min_by_key(|(_, place)| (place.requests > 0, place.idle_since))?;
            taken.vacate(first);
        }
        let number = taken.next;
        taken.next += 1;
        let leave = CancellationToken::new();
        let (standing, idle_since) = (Standing::Unproven, Instant::now());
        taken.slots.insert(number, SlotState { standing, requests: 0, idle_since, leave: leave.clone() });
        Some(Arc::new(ConnectionSlot { slots: Arc::clone(self), number, leave }))
    }

    /// Marks a connection as proven, if necessary by taking the slot of the proven connection that is idle
    /// longest.
    fn prove(&self, number: u64) -> Result<(), AllBusy> {
        let mut taken = self.lock();
        let proven = || taken.slots.iter().filter(|(_, place)| place.standing == Standing::Proven);
        // A connection that has lost its slot is about to end.
        let is_settled = taken.slots.get(&number).is_none_or(|place| place.standing == Standing::Proven);
        if is_settled {
            return Ok(());
        }
        if proven().count() >= self.most - unproven_min(self.most) {
            let idle = proven().filter(|(_, place)| place.requests == 0);
            let (&longest, _) = idle.min_by_key(|(_, place)| place.idle_since).ok_or(AllBusy)?;
            taken.vacate(longest);
        }
        if let Some(place) = taken.slots.get_mut(&number) {
            place.standing = Standing::Proven;
        }
        Ok(())
    }

    /// Number of taken slots.
    pub(crate) fn count(&self) -> usize {
        self.lock().slots.len()
    }

    /// Number of requests in progress.
    pub(crate) fn requests(&self) -> usize {
        self.lock().slots.values().map(|place| place.requests).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn vacate(&mut self, number: u64) {
        if let Some(place) = self.slots.remove(&number) {
            place.leave.cancel();
        }
    }
}

/// Number of slots reserved for connections that have not shown their token yet.
fn unproven_min(most: usize) -> usize {
    (most / UNPROVEN_SHARE).max(1)
}

fn slots_for(descriptors: u64) -> usize {
    usize::try_from(descriptors).map_or(usize::MAX, |count| count / DESCRIPTORS_PER_SLOT).max(1)
}

impl ConnectionSlot {
    /// Marks the connection as proven.
    pub(crate) fn prove(&self) -> Result<(), AllBusy> {
        self.slots.prove(self.number)
    }

    /// Completes when another connection needs the slot.
    pub(crate) async fn must_leave(&self) {
        self.leave.cancelled().await;
    }

    /// Marks a request as in progress until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        if let Some(place) = self.slots.lock().slots.get_mut(&self.number) {
            place.requests += 1;
        }
        Busy { slot: Arc::clone(self) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(place) = self.slot.slots.lock().slots.get_mut(&self.slot.number) {
            place.requests -= 1;
            place.idle_since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: usize = 8;

    fn take(slots: &Arc<ConnectionSlots>, count: usize) -> Vec<Arc<ConnectionSlot>> {
        (0..count).map(|_| slots.take().unwrap()).collect()
    }

    fn left(slots: &[Arc<ConnectionSlot>]) -> Vec<usize> {
        let left = slots.iter().enumerate().filter(|(_, slot)| slot.leave.is_cancelled());
        left.map(|(at, _)| at).collect()
    }

    #[test]
    fn an_unproven_connection_only_takes_the_seat_of_another() {
        let slots = Arc::new(ConnectionSlots::new(SLOTS));
        let own = take(&slots, SLOTS - 2);
        own.iter().for_each(|slot| slot.prove().unwrap());
        let _busy = own[0].begin();
        let flood = take(&slots, SLOTS * 4);
        assert_eq!(left(&own), Vec::<usize>::new());
        assert_eq!(left(&flood), (0..SLOTS * 4 - 2).collect::<Vec<_>>());
        assert_eq!((slots.count(), slots.requests()), (SLOTS, 1));
    }

    #[test]
    fn an_unproven_connection_cannot_keep_its_seat_by_asking() {
        let slots = Arc::new(ConnectionSlots::new(SLOTS));
        let all = take(&slots, SLOTS);
        let _busy: Vec<_> = all.iter().skip(1).map(ConnectionSlot::begin).collect();
        let late = take(&slots, 2);
        assert_eq!((left(&all), left(&late)), (vec![0], vec![0]), "the idle ones first");
        let _asking = late[1].begin();
        take(&slots, 1);
        assert_eq!(left(&all), [0, 1], "then the oldest");
    }

    #[test]
    fn a_proven_connection_may_take_the_seat_of_a_proven_one_that_is_idle() {
        let slots = Arc::new(ConnectionSlots::new(SLOTS));
        let most = SLOTS - unproven_min(SLOTS);
        let own = take(&slots, most);
        own.iter().for_each(|slot| slot.prove().unwrap());
        let busy: Vec<_> = own.iter().filter(|slot| slot.number != 1).map(ConnectionSlot::begin).collect();
        let late = take(&slots, 1).remove(0);
        late.prove().unwrap();
        late.prove().unwrap();
        assert_eq!((left(&own), slots.count()), (vec![1], most));
        let _last = late.begin();
        let kept_out = take(&slots, 1).remove(0);
        assert_eq!(kept_out.prove(), Err(AllBusy));
        drop(busy);
        assert_eq!(kept_out.prove(), Ok(()));
    }

    #[test]
    fn there_are_at_least_two_slots() {
        let slots = Arc::new(ConnectionSlots::new(1));
        let (first, _second) = (slots.take().unwrap(), slots.take().unwrap());
        assert_eq!(first.prove(), Ok(()));
        assert!(slots.take().is_some());
        assert!(!first.leave.is_cancelled());
    }

    #[test]
    fn descriptors_are_left_for_runs() {
        assert_eq!(slots_for(1024), 512);
        assert_eq!(slots_for(0), 1);
        assert!(
            ConnectionSlots::within_descriptors(4).most == 4
                && ConnectionSlots::within_descriptors(usize::MAX).most > 4
        );
    }
}
