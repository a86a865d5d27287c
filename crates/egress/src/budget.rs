//! What one run may transfer through one access name: connections at once, and bytes in each direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

const MB: u64 = 1 << 20;

/// The maxima of an access name, for each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxima {
    /// Connections that are open at once.
    pub connections: u32,
    /// Megabytes that leave the sandbox.
    pub mb_out: u64,
    /// Megabytes that enter the sandbox.
    pub mb_in: u64,
}

impl Default for Maxima {
    fn default() -> Self {
        Self { connections: 32, mb_out: 10, mb_in: 200 }
    }
}

/// What is left of the maxima, shared by the connections of a run.
pub(crate) struct Budget {
    connections: Arc<Semaphore>,
    out: AtomicU64,
    into: AtomicU64,
}

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

impl Budget {
    pub(crate) fn new(maxima: Maxima) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(maxima.connections as usize)),
            out: AtomicU64::new(maxima.mb_out.saturating_mul(MB)),
            into: AtomicU64::new(maxima.mb_in.saturating_mul(MB)),
        }
    }

    /// A place for a connection. Dropping it frees the place.
    pub(crate) fn connect(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.connections).try_acquire_owned().map_err(|_| Refusal::TooManyConnections)
    }

    /// Refuses when nothing is left in one direction.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let is_left = |left: &AtomicU64| left.load(Ordering::Relaxed) > 0;
        if is_left(&self.out) && is_left(&self.into) { Ok(()) } else { Err(Refusal::TooManyBytes) }
    }

    /// Takes bytes from what is left. A piece that does not fit uses it up.
    pub(crate) fn take(&self, way: Way, bytes: usize) -> Result<(), Refusal> {
        let left = match way {
            Way::Out => &self.out,
            Way::In => &self.into,
        };
        let subtract = |left: u64| left.checked_sub(bytes as u64);
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).is_ok() {
            return Ok(());
        }
        left.store(0, Ordering::Relaxed);
        Err(Refusal::TooManyBytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up() {
        let budget = Budget::new(Maxima { connections: 1, mb_out: 1, mb_in: 1 });
        let place = budget.connect().unwrap();
        assert_eq!(budget.connect().unwrap_err(), Refusal::TooManyConnections);
        drop(place);
        drop(budget.connect().unwrap());
        budget.take(Way::Out, 1 << 20).unwrap();
        assert_eq!(budget.check(), Err(Refusal::TooManyBytes));
        assert_eq!(budget.take(Way::Out, 1), Err(Refusal::TooManyBytes));
        budget.take(Way::In, (1 << 20) - 1).unwrap();
        assert_eq!(budget.take(Way::In, 2), Err(Refusal::TooManyBytes));
        assert_eq!(
            budget.take(Way::In, 1),
            Err(Refusal::TooManyBytes),
            "nothing is left after a piece that did not fit"
        );
    }
}
