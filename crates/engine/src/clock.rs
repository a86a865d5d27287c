//! Wall-clock time, used only for recorded times. Everything that waits uses the monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch. A time before the epoch reads as zero.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
