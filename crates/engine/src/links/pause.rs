//! The clock of a run stands still while a human is asked about something that its program wants.
//!
//! A broker holds the clock ([`RunPause::hold`]) while it waits for a human. The conversation adds that time to the deadline
//! of the run. Other limits go on: processor time, memory, output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most time by which the waits of one run prolong it.
pub const PAUSE_MAX: Duration = Duration::from_secs(30 * 60);
/// How often a held clock is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// How long the clock of a run stood still.
#[derive(Debug, Default)]
pub struct RunPause(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    holders: usize,
    since: Option<Instant>,
    before: Duration,
}

/// Holds the clock until it is dropped.
#[derive(Debug)]
pub struct PauseHold(Arc<RunPause>);

impl RunPause {
    /// Holds the clock.
    pub fn hold(self: &Arc<Self>) -> PauseHold {
        let mut state = self.lock();
        state.holders += 1;
        state.since.get_or_insert_with(Instant::now);
        drop(state);
        PauseHold(Arc::clone(self))
    }

    /// When a run ends whose time would be over now; `None` if it is over.
    pub(crate) fn prolonged(&self, deadline: Instant) -> Option<Instant> {
        let now = Instant::now();
        let state = self.lock();
        let held = state.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let total = (state.before + held).min(PAUSE_MAX);
        let is_held = state.since.is_some() && total < PAUSE_MAX;
        let until = deadline + total;
        if is_held { Some(until.max(now + LOOK_PAUSE)) } else { (until > now).then_some(until) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PauseHold {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holders -= 1;
        if state.holders == 0
            && let Some(since) = state.since.take()
        {
            state.before += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_held_clock_stands_still_and_goes_on_later() {
        let pause = Arc::new(RunPause::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        tokio::time::advance(Duration::from_secs(4)).await;
        let (one, other) = (pause.hold(), pause.hold());
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(pause.prolonged(deadline).unwrap() > Instant::now());
        drop(one);
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(other);
        assert_eq!(pause.prolonged(deadline), Some(deadline + Duration::from_secs(60)));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(pause.prolonged(deadline), None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_prolong_a_run_by_a_maximum() {
        let pause = Arc::new(RunPause::default());
        let deadline = Instant::now();
        let _held = pause.hold();
        tokio::time::advance(PAUSE_MAX + Duration::from_secs(1)).await;
        assert_eq!(pause.prolonged(deadline), None);
    }
}
