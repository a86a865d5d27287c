//! The demand for spares of one key, and how many spares it justifies. Pure functions: the caller supplies the
//! time.

use std::time::{Duration, Instant};

/// The time constant with which arrivals decay.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// The time constant with which misses decay.
const MISS_WINDOW: Duration = Duration::from_secs(30);
/// Arrivals are uneven, so the pool keeps this many times their mean.
const UNEVENNESS: f64 = 2.0;
/// The weight of the last build in the mean build time.
const BUILD_WEIGHT: f64 = 0.3;
/// The assumed build time before the first build.
const BUILD_GUESS: Duration = Duration::from_millis(50);

/// A count that decays over time.
#[derive(Debug, Clone, Copy)]
struct Fading {
    level: f64,
    at: Instant,
    window: Duration,
}

impl Fading {
    fn new(now: Instant, window: Duration) -> Self {
        Self { level: 0.0, at: now, window }
    }

    fn level(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.level * (-age / self.window.as_secs_f64()).exp()
    }

    fn add(&mut self, now: Instant) {
        (self.level, self.at) = (self.level(now) + 1.0, now);
    }
}

/// The demand for one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    arrivals: Fading,
    misses: Fading,
    build: Duration,
    pub(super) last_asked: Instant,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            arrivals: Fading::new(now, RATE_WINDOW),
            misses: Fading::new(now, MISS_WINDOW),
            build: BUILD_GUESS,
            last_asked: now,
        }
    }

    /// Records a request for a sandbox.
    pub(super) fn ask(&mut self, now: Instant) {
        self.arrivals.add(now);
        self.last_asked = now;
    }

    /// Records a request that found no spare.
    pub(super) fn miss(&mut self, now: Instant) {
        self.misses.add(now);
    }

    /// Records how long a build took.
    pub(super) fn built_in(&mut self, took: Duration) {
        self.build = self.build.mul_f64(1.0 - BUILD_WEIGHT) + took.mul_f64(BUILD_WEIGHT);
    }

    /// How many spares to keep: the requests expected during one build, plus the recent simultaneous misses.
    pub(super) fn worth(&self, now: Instant, floor: usize, ceiling: usize) -> usize {
        let rate = self.arrivals.level(now) / RATE_WINDOW.as_secs_f64();
        let meanwhile = rate * self.build.as_secs_f64() * UNEVENNESS;
        // The first request always misses, and so does an occasional one. The floor covers these.
        let in_vain = (self.misses.level(now) - 1.0).max(0.0);
        let more = meanwhile.floor() + in_vain.round();
        floor.saturating_add(more as usize).min(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: usize = 2;
    const CEILING: usize = 16;

    fn at(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_key_that_is_hardly_used_has_the_floor() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        demand.ask(start);
        assert_eq!(demand.worth(start, FLOOR, CEILING), FLOOR);
    }

    #[test]
    fn a_higher_rate_and_a_longer_build_keep_more_and_idleness_ends_it() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        demand.built_in(Duration::from_millis(200));
        for step in 0..200 {
            demand.ask(at(start, f64::from(step) * 0.05));
        }
        let busy = demand.worth(at(start, 10.0), FLOOR, CEILING);
        assert!(busy > FLOOR && busy < CEILING, "{busy}");
        for _ in 0..20 {
            demand.built_in(Duration::from_secs(2));
        }
        assert_eq!(demand.worth(at(start, 10.0), FLOOR, CEILING), CEILING);
        assert_eq!(demand.worth(at(start, 60.0), FLOOR, CEILING), FLOOR);
    }

    #[test]
    fn those_who_came_at_once_in_vain_find_one_next_time() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        for _ in 0..6 {
            demand.ask(start);
            demand.miss(start);
        }
        assert!(demand.worth(at(start, 1.0), FLOOR, CEILING) >= 7);
        assert_eq!(demand.worth(at(start, 300.0), FLOOR, CEILING), FLOOR);
    }
}
