//! The subscriber: records events of Palisade's own crates, with the ids of the enclosing spans.

use std::sync::Arc;

use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::Fields;
use super::otlp::Traced;
use super::{Log, LogLevel, filter};

/// Fields of a span that its events inherit: they identify the run of an event.
const IDENTIFYING: [&str; 3] = ["run_id", "sandbox_id", "principal"];

/// Spans up to this level are sent to a collector, independent of the log level.
const SENT: Level = Level::DEBUG;

/// The layer that records events and spans.
pub(super) struct LogLayer {
    log: Arc<Log>,
}

impl LogLayer {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self { log }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let is_told = self.log.wants(level_of(*metadata.level()));
        let is_sent = metadata.is_span() && self.log.exporter.get().is_some() && *metadata.level() <= SENT;
        (is_told || is_sent) && filter::is_own(metadata.target())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    /// Called once per callsite, and again when the level changes. A disabled event afterwards costs one
    /// atomic load.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
        let told = levels.into_iter().find(|level| self.log.wants(level_of(*level))).unwrap_or(Level::ERROR);
        let sent = self.log.exporter.get().map_or(told, |_| SENT);
        Some(LevelFilter::from_level(told.max(sent)))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = span.parent().and_then(|parent| parent.extensions().get::<Traced>().copied());
        let mut extensions = span.extensions_mut();
        extensions.insert(fields);
        if self.log.exporter.get().is_some()
            && let Some(traced) = Traced::begin(parent)
        {
            extensions.insert(traced);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let (Some(exporter), Some(span)) = (self.log.exporter.get(), context.span(&id)) else { return };
        let mut extensions = span.extensions_mut();
        if let (Some(traced), Some(fields)) = (extensions.remove::<Traced>(), extensions.remove::<Fields>()) {
            exporter.send(traced.end(span.name(), fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // The innermost span takes precedence, and the event's own fields are not repeated.
        for span in context.event_scope(event).into_iter().flatten() {
            let extensions = span.extensions();
            let Some(known) = extensions.get::<Fields>() else { continue };
            let ids: Vec<(&'static str, Value)> = known
                .values
                .iter()
                .filter(|(name, _)| IDENTIFYING.contains(name) && !fields.has(name))
                .cloned()
                .collect();
            fields.values.extend(ids);
        }
        self.log.write(level_of(*event.metadata().level()), &fields.message, &fields.values);
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    }
}
