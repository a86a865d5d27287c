//! Takes the credentials of a server out of what it answers. Exact values only: a protection against accidents.

use serde_json::{Map, Value};

use crate::clean;
use crate::host::ToolError;

const MASK: &str = "[redacted]";
/// The longest message of an error: what a server said, and the words around it.
const ERROR_CHARACTERS_MAX: usize = 600;

/// Replaces every occurrence in every text of a result.
pub(crate) fn result(result: &mut Map<String, Value>, secrets: &[String]) {
    if secrets.is_empty() {
        return;
    }
    let fields = std::mem::take(result);
    *result = fields.into_iter().map(|(key, value)| (text(key, secrets), clean(value, secrets))).collect();
}

/// Replaces every occurrence in the message of an error, which is cut only then: a part of a credential is not found.
pub(crate) fn error(mut error: ToolError, secrets: &[String]) -> ToolError {
    error.message = clean::line(&text(error.message, secrets), ERROR_CHARACTERS_MAX);
    error
}

fn clean(value: Value, secrets: &[String]) -> Value {
    match value {
        Value::String(one) => Value::String(text(one, secrets)),
        Value::Array(items) => items.into_iter().map(|item| clean(item, secrets)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (text(key, secrets), clean(value, secrets)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// Replaces every occurrence in a text.
pub(crate) fn text(mut text: String, secrets: &[String]) -> String {
    for secret in secrets {
        if !secret.is_empty() && text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), MASK);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_do_not_come_back_in_any_text() {
        let mut answer = json!({"content": [{"text": "token s3cret-value!"}], "s3cret-value": {"n": 1}});
        let fields = answer.as_object_mut().unwrap();
        result(fields, &["s3cret-value".to_owned()]);
        let shown = answer.to_string();
        assert!(!shown.contains("s3cret") && shown.matches(MASK).count() == 2, "{shown}");
    }
}
