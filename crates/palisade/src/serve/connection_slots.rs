//! ConnectionSlots: how many connections a server has at once, and which one is closed when there are too many.
//!
//! ```text
//! accept -> Unproven -- a request shows the token --> Proven (for as long as the connection lasts)
//! ```
//! - A new connection is unproven. When all seats are taken, it gets the seat of another unproven connection: of the
//!   one idle longest, or, when all of them have a request in progress, of the oldest.
//! - A connection that proves who it is may get the seat of the proven connection that is idle longest.
//! - A proven connection with a request in progress keeps its seat, whatever comes.
//!
//! Proven connections never have all seats ([`unproven_min`]), so the next caller can always connect and show its token.
//! Unproven connections use what is left, so a flood of them costs a bounded amount and closes only connections of its kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::log::{self, LogLevel};

/// Connections at once, unless the operator says otherwise.
pub(crate) const SEATS_MAX: usize = 2048;
/// Connections get one descriptor in so many; the others are for runs, which need several each, and for files.
const DESCRIPTORS_PER_SEAT: usize = 2;
/// One seat in so many is never a proven connection's.
const UNPROVEN_SHARE: usize = 8;

/// All seats of a server.
pub(crate) struct ConnectionSlots {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    seats: BTreeMap<u64, Place>,
}

struct Place {
    standing: Standing,
    requests: usize,
    idle_since: Instant,
    leave: CancellationToken,
}

/// Whether a connection has shown who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproven,
    Proven,
}

/// Every seat that proven connections may have is taken by one with a request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllBusy;

/// One connection's seat; given up when dropped.
pub(crate) struct ConnectionSlot {
    seats: Arc<ConnectionSlots>,
    number: u64,
    leave: CancellationToken,
}

/// A request under way on a seat.
pub(crate) struct Busy {
    seat: Arc<ConnectionSlot>,
}

impl ConnectionSlots {
    /// So many, or what this process may have. A shell gives 1024 descriptors at first and more when asked: without
    /// that, or with a seat for each of them, idle connections would keep out everybody else, and every run.
    pub(crate) fn within_descriptors(wanted: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let descriptors = (wanted.saturating_mul(DESCRIPTORS_PER_SEAT)) as u64;
        let possible = limit.maximum.map_or(descriptors, |maximum| maximum.min(descriptors));
        let mut current = limit.current.unwrap_or(descriptors);
        let raised = Rlimit { current: Some(possible), ..limit };
        if current < possible && setrlimit(Resource::Nofile, raised).is_ok() {
            current = possible;
        }
        let most = seats_for(current).min(wanted);
        if most < wanted {
            let fields = [("connections_max", json!(wanted)), ("possible", json!(most))];
            log::line(LogLevel::Warn, "too_few_descriptors", &fields);
        }
        Self::new(most)
    }

    /// So many, and at least one of each standing.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(2), taken: Mutex::default() }
    }

    /// A seat for a new connection, if need be that of another unproven one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Arc<ConnectionSlot>> {
        let mut taken = self.lock();
        if taken.seats.len() >= self.most {
            let unproven = taken.seats.iter().filter(|(_, place)| place.standing == Standing::Unproven);
            let (&first, _) = unproven.min_by_key(|(_, place)| (place.requests > 0, place.idle_since))?;
            taken.vacate(first);
        }
        let number = taken.next;
        taken.next += 1;
        let leave = CancellationToken::new();
        let (standing, idle_since) = (Standing::Unproven, Instant::now());
        taken.seats.insert(number, Place { standing, requests: 0, idle_since, leave: leave.clone() });
        Some(Arc::new(ConnectionSlot { seats: Arc::clone(self), number, leave }))
    }

    /// Has a connection count as proven, if need be in the place of the proven one that is idle longest.
    fn prove(&self, number: u64) -> Result<(), AllBusy> {
        let mut taken = self.lock();
        let proven = || taken.seats.iter().filter(|(_, place)| place.standing == Standing::Proven);
        // A connection that has lost its seat is about to end.
        let is_settled = taken.seats.get(&number).is_none_or(|place| place.standing == Standing::Proven);
        if is_settled {
            return Ok(());
        }
        if proven().count() >= self.most - unproven_min(self.most) {
            let idle = proven().filter(|(_, place)| place.requests == 0);
            let (&longest, _) = idle.min_by_key(|(_, place)| place.idle_since).ok_or(AllBusy)?;
            taken.vacate(longest);
        }
        if let Some(place) = taken.seats.get_mut(&number) {
            place.standing = Standing::Proven;
        }
        Ok(())
    }

    /// How many are taken.
    pub(crate) fn count(&self) -> usize {
        self.lock().seats.len()
    }

    /// How many requests are under way.
    pub(crate) fn requests(&self) -> usize {
        self.lock().seats.values().map(|place| place.requests).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn vacate(&mut self, number: u64) {
        if let Some(place) = self.seats.remove(&number) {
            place.leave.cancel();
        }
    }
}

/// ConnectionSlots that proven connections leave to those that have yet to show their token.
fn unproven_min(most: usize) -> usize {
    (most / UNPROVEN_SHARE).max(1)
}

fn seats_for(descriptors: u64) -> usize {
    usize::try_from(descriptors).map_or(usize::MAX, |count| count / DESCRIPTORS_PER_SEAT).max(1)
}

impl ConnectionSlot {
    /// Says that the connection has shown who it is.
    pub(crate) fn prove(&self) -> Result<(), AllBusy> {
        self.seats.prove(self.number)
    }

    /// Completes when the seat is needed for another connection.
    pub(crate) async fn must_leave(&self) {
        self.leave.cancelled().await;
    }

    /// Says that a request is under way until the answer is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        if let Some(place) = self.seats.lock().seats.get_mut(&self.number) {
            place.requests += 1;
        }
        Busy { seat: Arc::clone(self) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(place) = self.seat.seats.lock().seats.get_mut(&self.seat.number) {
            place.requests -= 1;
            place.idle_since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.seats.lock().seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEATS: usize = 8;

    fn take(seats: &Arc<ConnectionSlots>, count: usize) -> Vec<Arc<ConnectionSlot>> {
        (0..count).map(|_| seats.take().unwrap()).collect()
    }

    fn left(seats: &[Arc<ConnectionSlot>]) -> Vec<usize> {
        let left = seats.iter().enumerate().filter(|(_, seat)| seat.leave.is_cancelled());
        left.map(|(at, _)| at).collect()
    }

    #[test]
    fn an_unproven_connection_only_takes_the_seat_of_another() {
        let seats = Arc::new(ConnectionSlots::new(SEATS));
        let own = take(&seats, SEATS - 2);
        own.iter().for_each(|seat| seat.prove().unwrap());
        let _busy = own[0].begin();
        let flood = take(&seats, SEATS * 4);
        assert_eq!(left(&own), Vec::<usize>::new());
        assert_eq!(left(&flood), (0..SEATS * 4 - 2).collect::<Vec<_>>());
        assert_eq!((seats.count(), seats.requests()), (SEATS, 1));
    }

    #[test]
    fn an_unproven_connection_cannot_keep_its_seat_by_asking() {
        let seats = Arc::new(ConnectionSlots::new(SEATS));
        let all = take(&seats, SEATS);
        let _busy: Vec<_> = all.iter().skip(1).map(ConnectionSlot::begin).collect();
        let late = take(&seats, 2);
        assert_eq!((left(&all), left(&late)), (vec![0], vec![0]), "the idle ones first");
        let _asking = late[1].begin();
        take(&seats, 1);
        assert_eq!(left(&all), [0, 1], "then the oldest");
    }

    #[test]
    fn a_proven_connection_may_take_the_seat_of_a_proven_one_that_is_idle() {
        let seats = Arc::new(ConnectionSlots::new(SEATS));
        let most = SEATS - unproven_min(SEATS);
        let own = take(&seats, most);
        own.iter().for_each(|seat| seat.prove().unwrap());
        let busy: Vec<_> = own.iter().filter(|seat| seat.number != 1).map(ConnectionSlot::begin).collect();
        let late = take(&seats, 1).remove(0);
        late.prove().unwrap();
        late.prove().unwrap();
        assert_eq!((left(&own), seats.count()), (vec![1], most));
        let _last = late.begin();
        let kept_out = take(&seats, 1).remove(0);
        assert_eq!(kept_out.prove(), Err(AllBusy));
        drop(busy);
        assert_eq!(kept_out.prove(), Ok(()));
    }

    #[test]
    fn there_are_at_least_two_seats() {
        let seats = Arc::new(ConnectionSlots::new(1));
        let (first, _second) = (seats.take().unwrap(), seats.take().unwrap());
        assert_eq!(first.prove(), Ok(()));
        assert!(seats.take().is_some());
        assert!(!first.leave.is_cancelled());
    }

    #[test]
    fn descriptors_are_left_for_runs() {
        assert_eq!(seats_for(1024), 512);
        assert_eq!(seats_for(0), 1);
        assert!(
            ConnectionSlots::within_descriptors(4).most == 4
                && ConnectionSlots::within_descriptors(usize::MAX).most > 4
        );
    }
}
