//! The log for operators: one line per event on standard error, as JSON or for people.
//!
//! ```text
//! tracing::info!(...) -> level and target wanted? -> fields, and the ids of the run around it -> one line
//!                        (else one atomic load)                                                   json | pretty
//! ```
//! Lines have events and durations, never code, output, arguments or secrets. Only events of Palisade's own
//! crates are logged ([`filter`]), because the events of the MCP library, HTTP and TLS hold arguments and
//! headers. Writing never waits. While standard error is not read, lines are dropped, and the next written
//! line has their number. Spans can also be sent to an OpenTelemetry collector ([`otlp`]). [`crate::machine`]
//! installs the log after it forked the spawner, so that no sandbox inherits it.

mod fields;
mod filter;
mod json;
mod layer;
mod otlp;
mod pretty;
mod sink;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox::Failures;
use serde_json::Value;
use terminal::Paint;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

pub(crate) use crate::config::{LogFormat, LogLevel};

use self::layer::LogLayer;
use self::otlp::Exporter;
use self::sink::{Sink, Stderr};

static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// A line before it is rendered.
struct Line<'a> {
    time: std::time::Duration,
    level: LogLevel,
    event: &'a str,
    fields: &'a [(&'a str, Value)],
    /// Number of lines dropped before this one.
    dropped: u64,
}

/// The sink, the level and the format of the log.
struct Log {
    /// A [`LogLevel`]; until it is configured, only errors are logged.
    level: AtomicU8,
    /// A [`Shape`].
    shape: AtomicU8,
    dropped: AtomicU64,
    paint: Paint,
    sink: Box<dyn Sink>,
    /// Exports spans, if an endpoint is configured.
    exporter: OnceLock<Exporter>,
}

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Shape {
    Json,
    Pretty,
}

impl Log {
    fn new(sink: Box<dyn Sink>, paint: Paint) -> Self {
        let shape = Shape::of(LogFormat::Auto, sink.is_terminal());
        Self {
            level: AtomicU8::new(LogLevel::Error as u8),
            shape: AtomicU8::new(shape as u8),
            dropped: AtomicU64::new(0),
            paint,
            sink,
            exporter: OnceLock::new(),
        }
    }

    fn configure(&self, level: LogLevel, format: LogFormat) {
        self.level.store(level as u8, Ordering::Relaxed);
        self.shape.store(Shape::of(format, self.sink.is_terminal()) as u8, Ordering::Relaxed);
    }

    fn wants(&self, level: LogLevel) -> bool {
        level as u8 <= self.level.load(Ordering::Relaxed)
    }

    fn write(&self, level: LogLevel, event: &str, fields: &[(&str, Value)]) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let line = Line { time, level, event, fields, dropped };
        let mut text = match self.shape.load(Ordering::Relaxed) == Shape::Pretty as u8 {
            true => pretty::render(&line, self.paint),
            false => json::render(&line),
        };
        text.push('\n');
        if !self.sink.write(text.as_bytes()) {
            // This line, and the dropped lines that it would have reported.
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

impl Shape {
    fn of(format: LogFormat, is_terminal: bool) -> Self {
        match format {
            LogFormat::Json => Self::Json,
            LogFormat::Pretty => Self::Pretty,
            LogFormat::Auto if is_terminal => Self::Pretty,
            LogFormat::Auto => Self::Json,
        }
    }
}

fn log() -> &'static Arc<Log> {
    LOG.get_or_init(|| Arc::new(Log::new(Box::new(Stderr), Paint::for_stream(&std::io::stderr()))))
}

/// Installs the log for this process. Until [`configure`], only errors are logged.
pub(crate) fn install() {
    let subscriber = Registry::default().with(LogLayer::new(Arc::clone(log())));
    // A second subscriber is ignored, because there is only one standard error.
    tracing::subscriber::set_global_default(subscriber).ok();
}

/// Sets the level and the format.
pub(crate) fn configure(level: LogLevel, format: LogFormat) {
    log().configure(level, format);
    // Every callsite caches whether it is enabled, and the maximum level is cached globally.
    tracing::callsite::rebuild_interest_cache();
}

/// Exports spans to a collector from now on.
pub(crate) fn export(endpoint: &str, failures: &Arc<Failures>) -> std::io::Result<()> {
    let exporter = Exporter::start(endpoint, Arc::clone(failures))?;
    log().exporter.get_or_init(|| exporter);
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

/// Sends the remaining spans, within a short time. Later spans are not sent.
pub(crate) fn finish() {
    if let Some(exporter) = LOG.get().and_then(|log| log.exporter.get()) {
        exporter.finish();
    }
}

#[cfg(test)]
mod tests;
