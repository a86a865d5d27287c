//! Kernel resources of ended sandboxes, kept briefly for reuse.
//!
//! Nothing is kept for long: what is not reused within seconds is dropped, so that an idle server holds no
//! kernel resources.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// Maximum number of items of one kind.
const FREE_MAX: usize = 8;
/// How long an item is kept.
const WAIT: Duration = Duration::from_secs(2);

/// Items available for reuse, the oldest first.
pub(super) struct Free<T> {
    list: Mutex<List<T>>,
}

struct List<T> {
    waiting: VecDeque<(Instant, T)>,
    is_swept: bool,
}

impl<T> Default for Free<T> {
    fn default() -> Self {
        Self { list: Mutex::new(List { waiting: VecDeque::new(), is_swept: false }) }
    }
}

impl<T: Send + 'static> Free<T> {
    /// Takes the oldest item, if it is suitable.
    pub(super) fn take(&self, will_do: impl FnOnce(&mut T) -> bool) -> Option<T> {
        self.list().waiting.pop_front_if(|(_, oldest)| will_do(oldest)).map(|(_, oldest)| oldest)
    }

    /// Keeps an item for reuse; returns it if enough are kept already.
    pub(super) fn put(self: &Arc<Self>, thing: T) -> Option<T> {
        let Ok(runtime) = Handle::try_current() else { return Some(thing) };
        let mut list = self.list();
        if list.waiting.len() >= FREE_MAX {
            return Some(thing);
        }
        list.waiting.push_back((Instant::now(), thing));
        if !list.is_swept {
            list.is_swept = true;
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
        None
    }

    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut self.list().waiting);
        drop(dropped);
    }

    /// Drops items that were kept long enough; returns whether any is left.
    fn drop_old(&self, now: Instant) -> bool {
        let mut list = self.list();
        let count = list.waiting.partition_point(|(since, _)| now.saturating_duration_since(*since) >= WAIT);
        let dropped: Vec<_> = list.waiting.drain(..count).collect();
        list.is_swept = !list.waiting.is_empty();
        let is_left = list.is_swept;
        drop(list);
        drop(dropped);
        is_left
    }

    fn list(&self) -> MutexGuard<'_, List<T>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep<T: Send + 'static>(free: Weak<Free<T>>) {
    loop {
        tokio::time::sleep(WAIT / 2).await;
        if !free.upgrade().is_some_and(|free| free.drop_old(Instant::now())) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_is_taken_if_it_will_do() {
        let free = Arc::new(Free::default());
        assert_eq!(free.put(1), None);
        assert_eq!(free.put(2), None);
        assert_eq!(free.take(|oldest| *oldest == 2), None);
        assert_eq!(free.take(|_| true), Some(1));
        assert_eq!(free.take(|_| true), Some(2));
        assert_eq!(free.take(|_| true), None);
    }

    #[tokio::test]
    async fn no_more_are_kept_than_wanted() {
        let free = Arc::new(Free::default());
        assert!((0..FREE_MAX).all(|number| free.put(number).is_none()));
        assert_eq!(free.put(99), Some(99));
        free.clear();
        assert_eq!(free.take(|_| true), None);
    }

    #[tokio::test]
    async fn what_nobody_takes_is_dropped() {
        let free = Arc::new(Free::default());
        let thing = Arc::new(());
        let watched = Arc::downgrade(&thing);
        assert!(free.put(thing).is_none());
        assert!(free.drop_old(Instant::now()) && watched.upgrade().is_some());
        assert!(!free.drop_old(Instant::now() + WAIT) && watched.upgrade().is_none());
    }
}
