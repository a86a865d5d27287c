//! Tells the operator that the disk of the state directory is full. Callers cannot repair it, and their errors
//! are not in the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two events, because every write fails while the disk is full.
const PAUSE: Duration = Duration::from_secs(60);

static TOLD: Mutex<Option<Instant>> = Mutex::new(None);

/// Logs that the disk is full.
pub(crate) fn tell_full() {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.is_none_or(|told| told.elapsed() >= PAUSE) {
        *told = Some(Instant::now());
        tracing::error!(remedy = "free space on the disk of the state directory", "state_disk_full");
    }
}

#[cfg(test)]
mod tests {
    use crate::result::RunError;
    use crate::test_events::Heard;
    use crate::workspace::FileError;

    #[test]
    fn a_full_disk_is_logged_once_and_the_caller_is_not_told_to_remove_its_files() {
        let heard = Heard::begin();
        for _ in 0..3 {
            let error = RunError::from(&FileError::StateDiskFull);
            assert_eq!((error.code.as_ref(), error.retryable), ("state_disk_full", true));
            assert!(error.remedy.unwrap().contains("operator"));
        }
        let events = heard.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].starts_with("state_disk_full ") && events[0].contains("free space"), "{events:?}");
    }
}
