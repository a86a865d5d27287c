//! Takes the credentials of a server out of what it answers. Exact values only: a protection against accidents.

use serde_json::{Map, Value};

use crate::host::ToolError;

const MASK: &str = "[redacted]";

/// Replaces every occurrence in every text of a result.
pub(crate) fn result(result: &mut Map<String, Value>, secrets: &[String]) {
    if secrets.is_empty() {
        return;
    }
    let fields = std::mem::take(result);
    *result = fields.into_iter().map(|(key, value)| (text(key, secrets), clean(value, secrets))).collect();
}

/// Replaces every occurrence in the message of an error.
pub(crate) fn error(mut error: ToolError, secrets: &[String]) -> ToolError {
    error.message = text(error.message, secrets);
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

fn text(mut text: String, secrets: &[String]) -> String {
    for secret in secrets {
        if text.contains(secret.as_str()) {
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
