//! Renders a log line for people: time of day, level, event, then the fields.
//!
//! ```text
//! 12:44:01.123Z INFO  listening address=127.0.0.1:8808 tls=false
//! ```
//! Values may be foreign text, such as the name of a client. Control characters never reach the terminal.

use std::fmt::Write;

use serde_json::Value;
use terminal::Paint;

use super::{Line, LogLevel};

const DAY_MS: u128 = 24 * 60 * 60 * 1000;

pub(super) fn render(line: &Line<'_>, paint: Paint) -> String {
    let level = format!("{:5}", line.level.name().to_uppercase());
    let level = match line.level {
        LogLevel::Error => paint.bad(&level),
        LogLevel::Warn => paint.warning(&level),
        LogLevel::Info => paint.good(&level),
        LogLevel::Debug | LogLevel::Trace => paint.dim(&level),
    };
    let mut text =
        format!("{} {level} {}", paint.dim(&time_of_day(line.time)), paint.bold(&shown(line.event)));
    for (name, value) in line.fields {
        push(&mut text, name, &written(value), paint);
    }
    if line.dropped > 0 {
        push(&mut text, "lines_dropped", &line.dropped.to_string(), paint);
    }
    text
}

fn push(text: &mut String, name: &str, value: &str, paint: Paint) {
    // Writing to a string cannot fail.
    write!(text, " {}{value}", paint.dim(&format!("{name}="))).ok();
}

/// Universal time, because the server's time zone may differ from the reader's.
fn time_of_day(since_epoch: std::time::Duration) -> String {
    let ms = since_epoch.as_millis() % DAY_MS;
    let (seconds, ms) = (ms / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        other => shown(&other.to_string()),
    }
}

/// Plain words unchanged; other text quoted and escaped, because it could mislead the reader or the terminal.
fn shown(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '"' | '=');
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("{text:?}") }
}
