//! What is known about one language: its toolchain or a permanent error, or that its interpreter did not answer
//! in time and when the server probes it again. A loaded machine is no reason to refuse a language until the
//! next start.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandbox::Toolchain;
use tokio::sync::OnceCell;

use super::{Runtime, RuntimeError};

/// The pause before an interpreter that did not answer is probed again. It doubles each time.
const LATE_PAUSE_MIN: Duration = Duration::from_secs(5);
const LATE_PAUSE_MAX: Duration = Duration::from_secs(300);

/// What is known about one language.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) toolchain: OnceCell<Result<Arc<Toolchain>, RuntimeError>>,
    pub(super) runtime: OnceCell<Arc<Runtime>>,
    late: Mutex<Option<PutOff>>,
}

/// A probe that did not answer in time, and when the next one may begin.
struct PutOff {
    error: RuntimeError,
    pause: Duration,
    until: Instant,
}

impl Slot {
    /// Whether the interpreter may be probed now; otherwise why not yet.
    pub(super) fn due(&self) -> Result<(), RuntimeError> {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(put_off) = late.as_ref() else { return Ok(()) };
        let left = put_off.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Ok(()) } else { Err(put_off.error.clone().in_time(left)) }
    }

    /// Postpones the next probe, each time for longer.
    pub(super) fn put_off(&self, error: RuntimeError) -> RuntimeError {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = late.as_ref().map_or(LATE_PAUSE_MIN, |before| (before.pause * 2).min(LATE_PAUSE_MAX));
        *late = Some(PutOff { error: error.clone(), pause, until: Instant::now() + pause });
        error.in_time(pause)
    }
}

#[cfg(test)]
mod tests {
    use sandbox::InventoryError;
    use sandbox::fake::FakeBackend;

    use super::super::Runtimes;
    use super::*;

    #[tokio::test]
    async fn an_interpreter_that_was_late_once_is_asked_again_later() {
        let fake = FakeBackend::new(drop);
        fake.languages().set("bash", Err(InventoryError::Late { reason: "it is busy".to_owned() }));
        let runtimes = Runtimes::new(Arc::new(fake.clone()), std::path::Path::new("/nowhere"), None);
        let late = runtimes.find("bash").await.unwrap_err();
        assert_eq!(late.code(), "language_not_ready");
        assert!(late.retry_after_ms().is_some());
        // Until the pause is over the wall is not asked, even if it would answer now.
        fake.languages().set("bash", Ok(Toolchain::default()));
        assert_eq!(runtimes.find("bash").await.unwrap_err().code(), "language_not_ready");
        assert_eq!(fake.languages().asked().len(), 1);
        runtimes.ready["bash"].late.lock().unwrap().as_mut().unwrap().until = Instant::now();
        let found = runtimes.find("bash").await;
        assert!(found.is_ok(), "{found:?}");
    }

    #[tokio::test]
    async fn a_language_that_the_wall_does_not_have_is_not_asked_for_again() {
        let fake = FakeBackend::new(drop);
        fake.languages().set("bash", Err(InventoryError::Broken { reason: "it is empty".to_owned() }));
        let runtimes = Runtimes::new(Arc::new(fake.clone()), std::path::Path::new("/nowhere"), None);
        for _ in 0..2 {
            assert_eq!(runtimes.find("bash").await.unwrap_err().code(), "language_broken");
        }
        assert_eq!(fake.languages().asked(), ["bash"]);
    }

    #[test]
    fn each_pause_is_longer_than_the_one_before_up_to_a_limit() {
        let slot = Slot::default();
        let late = || RuntimeError::Late { title: String::new(), reason: String::new(), retry_after_ms: 0 };
        let pauses: Vec<_> = (0..9).map(|_| slot.put_off(late()).retry_after_ms().unwrap()).collect();
        assert_eq!(pauses[..3], [5_000, 10_000, 20_000]);
        assert_eq!(pauses[8], 300_000);
    }
}
