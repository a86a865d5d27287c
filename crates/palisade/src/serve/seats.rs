//! Seats for connections: a fixed number, and whoever sits idle longest gives his up when they run out.
//!
//! So thousands of connections that ask nothing cost a bounded amount and keep nobody out: a connection with a
//! request under way is never turned out for a new one.

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

/// All seats of a server.
pub(crate) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    seats: BTreeMap<u64, Place>,
}

struct Place {
    requests: usize,
    idle_since: Instant,
    leave: CancellationToken,
}

/// One connection's seat; given up when dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    leave: CancellationToken,
}

/// A request under way on a seat.
pub(crate) struct Busy {
    seat: Arc<Seat>,
}

impl Seats {
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

    /// So many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// A seat, if need be that of the connection idle longest; none when all are busy.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let mut taken = self.lock();
        if taken.seats.len() >= self.most {
            let idle = taken.seats.iter().filter(|(_, place)| place.requests == 0);
            let (&longest, _) = idle.min_by_key(|(_, place)| place.idle_since)?;
            if let Some(place) = taken.seats.remove(&longest) {
                place.leave.cancel();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let leave = CancellationToken::new();
        let place = Place { requests: 0, idle_since: Instant::now(), leave: leave.clone() };
        taken.seats.insert(number, place);
        Some(Arc::new(Seat { seats: Arc::clone(self), number, leave }))
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

fn seats_for(descriptors: u64) -> usize {
    usize::try_from(descriptors).map_or(usize::MAX, |count| count / DESCRIPTORS_PER_SEAT).max(1)
}

impl Seat {
    /// Completes when the seat is needed for somebody else.
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

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEATS: usize = 8;

    #[test]
    fn the_longest_idle_leaves_and_the_busy_stay() {
        let seats = Arc::new(Seats::new(SEATS));
        let all: Vec<_> = (0..SEATS).map(|_| seats.take().unwrap()).collect();
        let busy = all[0].begin();
        let late = seats.take().unwrap();
        assert!(all[1].leave.is_cancelled() && !all[0].leave.is_cancelled());
        assert_eq!((seats.count(), seats.requests()), (SEATS, 1));
        drop((late, busy));
        assert_eq!((seats.count(), seats.requests()), (SEATS - 1, 0));
    }

    #[test]
    fn descriptors_are_left_for_runs() {
        assert_eq!(seats_for(1024), 512);
        assert_eq!(seats_for(0), 1);
        assert!(Seats::within_descriptors(4).most == 4 && Seats::within_descriptors(usize::MAX).most > 4);
    }

    #[test]
    fn nobody_comes_in_when_all_are_busy() {
        let seats = Arc::new(Seats::new(SEATS));
        let all: Vec<_> = (0..SEATS).map(|_| seats.take().unwrap()).collect();
        let busy: Vec<_> = all.iter().map(Seat::begin).collect();
        assert!(seats.take().is_none());
        drop(busy);
        assert!(seats.take().is_some());
    }
}
