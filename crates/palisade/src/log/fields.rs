//! Fields of events and spans as JSON values.

use std::fmt::Debug;

use serde_json::{Value, json};
use tracing::field::{Field, Visit};

/// The field with the text of an event in `tracing`.
const MESSAGE: &str = "message";

/// The fields of one event or span, in order.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The text of the event.
    pub(super) message: String,
    pub(super) values: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name, value)),
        }
    }

    fn text(&mut self, field: &Field, text: String) {
        if field.name() == MESSAGE {
            self.message = text;
        } else {
            self.put(field, Value::String(text));
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(known, _)| *known == name)
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, value.to_string());
    }

    /// Values written with `%` are recorded here too.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, format!("{value:?}"));
    }
}
