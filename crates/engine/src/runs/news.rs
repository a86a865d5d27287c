//! Live output of a run for its followers.
//!
//! Each follower has a small buffer, which the run fills and the follower empties. A run never waits for a
//! follower. If a follower reads slowly, its oldest unread output is dropped and counted. The log has the
//! complete output.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use wire::Stream;

use crate::conversation::RunEvent;

/// The most bytes that wait for one follower.
const NEWS_BYTES_MAX: usize = 64 << 10;
/// The most pieces that wait for one follower. A program that switches streams at every byte makes one piece
/// per byte.
const NEWS_PIECES_MAX: usize = 1024;
/// The most followers of one run. Further followers receive nothing.
const FOLLOWERS_MAX: usize = 64;

/// All followers of one run.
#[derive(Debug, Default)]
pub(super) struct Followers(Mutex<Vec<Weak<Follower>>>);

impl Followers {
    /// Adds a follower, which receives the output from now on.
    pub(super) fn add(&self) -> RunNews {
        let follower = Arc::new(Follower::default());
        let mut list = self.list();
        list.retain(|known| known.strong_count() > 0);
        if list.len() < FOLLOWERS_MAX {
            list.push(Arc::downgrade(&follower));
        }
        RunNews(follower)
    }

    pub(super) fn tell(&self, stream: Stream, data: &[u8]) {
        for follower in self.list().iter().filter_map(Weak::upgrade) {
            follower.waiting().add(stream, data);
            follower.woken.notify_one();
        }
    }

    /// Marks the end: no more output follows.
    pub(super) fn end(&self) {
        for follower in self.list().drain(..).filter_map(|known| known.upgrade()) {
            follower.waiting().is_over = true;
            follower.woken.notify_one();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Follower>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Follower {
    waiting: Mutex<Waiting>,
    woken: Notify,
}

impl Follower {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output that one follower has not taken yet.
#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    left_out: u64,
    is_over: bool,
}

impl Waiting {
    fn add(&mut self, stream: Stream, data: &[u8]) {
        // When too much arrives at once, only its end is kept.
        let (early, late) = data.split_at(data.len().saturating_sub(NEWS_BYTES_MAX));
        self.left_out += early.len() as u64;
        match self.pieces.back_mut() {
            Some((last, bytes)) if *last == stream => bytes.extend_from_slice(late),
            _ => self.pieces.push_back((stream, late.to_vec())),
        }
        self.bytes += late.len();
        while self.bytes > NEWS_BYTES_MAX || self.pieces.len() > NEWS_PIECES_MAX {
            let surplus = self.bytes.saturating_sub(NEWS_BYTES_MAX);
            let Some((_, first)) = self.pieces.front_mut() else { return };
            let cut = if surplus == 0 { first.len() } else { surplus.min(first.len()) };
            first.drain(..cut);
            if first.is_empty() {
                self.pieces.pop_front();
            }
            self.bytes -= cut;
            self.left_out += cut as u64;
        }
    }

    fn take(&mut self) -> Option<RunEvent> {
        let (stream, data) = self.pieces.pop_front()?;
        self.bytes -= data.len();
        Some(RunEvent::Output { stream, data })
    }
}

/// The output of a run from one moment on, in the order of its arrival, with the stream of each piece.
#[derive(Debug)]
pub struct RunNews(Arc<Follower>);

impl RunNews {
    /// The next output, or `None` when the run has ended and everything was taken. Cancel safe.
    pub async fn next(&mut self) -> Option<RunEvent> {
        loop {
            let woken = self.0.woken.notified();
            {
                let mut waiting = self.0.waiting();
                let event = waiting.take();
                if event.is_some() || waiting.is_over {
                    return event;
                }
            }
            woken.await;
        }
    }

    /// How many bytes were dropped since the last call because they were not taken in time.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.0.waiting().left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};

    fn output(stream: Stream, data: &[u8]) -> Option<RunEvent> {
        Some(RunEvent::Output { stream, data: data.to_vec() })
    }

    #[tokio::test]
    async fn pieces_come_in_order_with_their_streams() {
        let followers = Followers::default();
        followers.tell(Stdout, b"before");
        let mut news = followers.add();
        for (stream, data) in [(Stdout, "a"), (Stdout, "b"), (Stderr, "c"), (Stdout, "d")] {
            followers.tell(stream, data.as_bytes());
        }
        assert_eq!(news.next().await, output(Stdout, b"ab"));
        assert_eq!(news.next().await, output(Stderr, b"c"));
        let waiting = tokio::spawn(async move {
            assert_eq!(news.next().await, output(Stdout, b"d"));
            assert_eq!(news.next().await, output(Stderr, b"e"));
            news.next().await
        });
        tokio::task::yield_now().await;
        followers.tell(Stderr, b"e");
        followers.end();
        assert_eq!(waiting.await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_follower_that_does_not_read_costs_little_and_is_told_the_end() {
        let followers = Followers::default();
        let mut news = followers.add();
        for number in 0..10_000_u32 {
            followers.tell(if number % 2 == 0 { Stdout } else { Stderr }, &[b'x'; 100]);
        }
        let measure = |waiting: MutexGuard<'_, Waiting>| (waiting.pieces.len(), waiting.bytes);
        let (pieces, bytes) = measure(news.0.waiting());
        assert!(pieces <= NEWS_PIECES_MAX && bytes <= NEWS_BYTES_MAX, "{pieces} {bytes}");
        assert_eq!(news.take_left_out() + bytes as u64, 1_000_000);
        followers.tell(Stderr, &[b'y'; 2 * NEWS_BYTES_MAX]);
        assert_eq!(news.next().await, output(Stderr, &[b'y'; NEWS_BYTES_MAX]));
        assert_eq!(news.take_left_out(), (bytes + NEWS_BYTES_MAX) as u64);
    }

    #[tokio::test]
    async fn followers_are_bounded_and_those_who_left_make_room() {
        let followers = Followers::default();
        let all: Vec<_> = (0..2 * FOLLOWERS_MAX).map(|_| followers.add()).collect();
        assert_eq!(followers.list().len(), FOLLOWERS_MAX);
        drop(all);
        let mut news = followers.add();
        followers.tell(Stdout, b"a");
        assert_eq!(news.next().await, output(Stdout, b"a"));
    }
}
