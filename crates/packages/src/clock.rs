//! The time, in milliseconds since the epoch.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;

/// Now.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A moment as registries write it.
pub(crate) fn parse_ms(text: &str) -> Option<i64> {
    DateTime::parse_from_rfc3339(text.trim()).ok().map(|moment| moment.timestamp_millis())
}

/// The day of a moment, for messages.
pub(crate) fn day(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms)
        .map(|moment| moment.format("%Y-%m-%d").to_string())
        .unwrap_or_default()
}

/// A moment for documents.
pub(crate) fn stamp(ms: i64) -> String {
    let moment = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    moment.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
