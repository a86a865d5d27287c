//! What operators read: one JSON object per line on standard error.
//!
//! Lines say what happened and how long it took, never code, output, arguments or secrets; that is why the
//! MCP library's own events, which do, are not wired to this. Writing never waits: when nobody reads standard
//! error, lines are dropped and the next one that gets through says how many.

use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};

pub(crate) use crate::config::LogLevel;

/// A pipe that reports room takes this much without waiting (PIPE_BUF, pipe(7)).
const LINE_BYTES_MAX: usize = 4096;

/// What is wanted; before that is known, only failures are told.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Error as u8);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Says how much is wanted.
pub(crate) fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes one line if that level is wanted.
pub(crate) fn line(level: LogLevel, event: &str, fields: &[(&str, Value)]) {
    if level as u8 > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let mut text = format(level, event, fields, DROPPED.swap(0, Ordering::Relaxed));
    text.push('\n');
    let mut stderr = std::io::stderr().lock();
    if text.len() > LINE_BYTES_MAX || !has_room(&stderr) || stderr.write_all(text.as_bytes()).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn format(level: LogLevel, event: &str, fields: &[(&str, Value)], dropped: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = Map::new();
    line.insert("time_ms".to_owned(), json!(u64::try_from(since.as_millis()).unwrap_or_default()));
    line.insert("level".to_owned(), json!(level.name()));
    line.insert("event".to_owned(), json!(event));
    line.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    if dropped > 0 {
        line.insert("lines_dropped".to_owned(), json!(dropped));
    }
    Value::Object(line).to_string()
}

fn has_room(stderr: &std::io::StderrLock<'_>) -> bool {
    let mut wanted = [PollFd::new(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut wanted, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let text = format(LogLevel::Info, "run_ended", &[("outcome", json!("a\nb"))], 3);
        assert!(!text.contains('\n'));
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["outcome"]), (&json!("info"), &json!("a\nb")));
        assert_eq!(line["lines_dropped"], 3);
    }
}
