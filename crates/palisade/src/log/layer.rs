//! The subscriber: takes events of Palisade's own crates, with the ids of the spans around them.

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
use super::{Log, LogLevel, filter};

/// Fields of a span that its events have too: they say which run an event is about.
const IDENTIFYING: [&str; 3] = ["run_id", "sandbox_id", "principal"];

/// Takes events.
pub(super) struct LogLayer {
    log: Arc<Log>,
}

impl LogLayer {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self { log }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        self.log.wants(level_of(*metadata.level())) && filter::is_own(metadata.target())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    /// Asked once for each callsite, and again when the level changes: what is not wanted costs one load afterwards.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN];
        let highest = levels.into_iter().find(|level| self.log.wants(level_of(*level)));
        Some(LevelFilter::from_level(highest.unwrap_or(Level::ERROR)))
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
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
        // The innermost span knows best; what the event says itself is not said twice.
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
