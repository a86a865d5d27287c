//! Records the events that the engine logs for operators, in tests.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A second subscriber that lives as long as the process. While only one exists, `tracing` asks the thread that
/// reaches a line first whether its events are wanted, and remembers that answer for all threads. With two it asks
/// every subscriber. Tests of one process share these answers.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Ear::default()));

/// The events on this thread from now on, at level warning and above.
pub(crate) struct Heard {
    events: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Heard {
    pub(crate) fn begin() -> Self {
        LazyLock::force(&SECOND);
        let events = Arc::default();
        let guard = tracing::subscriber::set_default(Ear(Arc::clone(&events)));
        Self { events, _guard: guard }
    }

    /// Events as `name field=value ...`.
    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }
}

#[derive(Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().unwrap().push(format!("{}{}", text.message, text.fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push_str(&format!(" {}={value}", field.name()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push_str(&format!(" {name}={value:?}")),
        }
    }
}
