//! How often a principal calls tools: a count for each minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::Principal;

use super::CALLS_PER_MINUTE_MAX;

const MINUTE: Duration = Duration::from_secs(60);
/// Principals whose counts are kept. Beyond, those of past minutes are dropped.
const PRINCIPALS_MAX: usize = 4096;

/// The counts of all principals.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<Principal, (Instant, u32)>>);

impl Rates {
    /// Counts a call, or says how long the principal must wait.
    pub(super) fn count(&self, principal: &Principal, now: Instant) -> Result<(), Duration> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= PRINCIPALS_MAX {
            counts.retain(|_, (since, _)| now.saturating_duration_since(*since) < MINUTE);
        }
        let (since, count) = counts.entry(principal.clone()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= MINUTE {
            (*since, *count) = (now, 0);
        }
        if *count >= CALLS_PER_MINUTE_MAX {
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
        let (rates, now) = (Rates::default(), Instant::now());
        let (one, other) = (Principal::local(), Principal::anonymous());
        for _ in 0..CALLS_PER_MINUTE_MAX {
            rates.count(&one, now).unwrap();
        }
        let wait = rates.count(&one, now + Duration::from_secs(20)).unwrap_err();
        assert_eq!(wait, Duration::from_secs(40));
        rates.count(&other, now).unwrap();
        rates.count(&one, now + MINUTE).unwrap();
    }
}
