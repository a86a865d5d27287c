//! How often a principal calls tools, and how often it asks: a count for each minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::Principal;

const MINUTE: Duration = Duration::from_secs(60);
/// Principals whose counts are kept. Beyond, those of past minutes are dropped.
const PRINCIPALS_MAX: usize = 4096;

/// The counts of all principals.
#[derive(Debug)]
pub(super) struct Rates {
    /// The most of one principal in a minute.
    max: u32,
    counts: Mutex<HashMap<Principal, (Instant, u32)>>,
}

impl Rates {
    pub(super) fn new(max: u32) -> Self {
        Self { max, counts: Mutex::default() }
    }

    /// Counts one, or says how long the principal must wait.
    pub(super) fn count(&self, principal: &Principal, now: Instant) -> Result<(), Duration> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= PRINCIPALS_MAX {
            counts.retain(|_, (since, _)| now.saturating_duration_since(*since) < MINUTE);
        }
        let (since, count) = counts.entry(principal.clone()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= MINUTE {
            (*since, *count) = (now, 0);
        }
        if *count >= self.max {
            return Err(MINUTE.saturating_sub(now.saturating_duration_since(*since)));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_waits_for_the_next_minute_and_others_do_not() {
        let (rates, now) = (Rates::new(100), Instant::now());
        let (one, other) = (Principal::local(), Principal::anonymous());
        for _ in 0..100 {
            rates.count(&one, now).unwrap();
        }
        let wait = rates.count(&one, now + Duration::from_secs(20)).unwrap_err();
        assert_eq!(wait, Duration::from_secs(40));
        rates.count(&other, now).unwrap();
        rates.count(&one, now + MINUTE).unwrap();
    }
}
