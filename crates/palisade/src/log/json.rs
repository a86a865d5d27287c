//! Renders a log line as one JSON object, for log collectors.

use serde_json::{Map, Value, json};

use super::Line;

pub(super) fn render(line: &Line<'_>) -> String {
    let mut object = Map::new();
    object.insert("time_ms".to_owned(), json!(u64::try_from(line.time.as_millis()).unwrap_or_default()));
    object.insert("level".to_owned(), json!(line.level.name()));
    object.insert("event".to_owned(), json!(line.event));
    object.extend(line.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    if line.dropped > 0 {
        object.insert("lines_dropped".to_owned(), json!(line.dropped));
    }
    Value::Object(object).to_string()
}
