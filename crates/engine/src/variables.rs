//! Variables of a run: JSON values that the driver binds as native values. They are never pasted into code.
//!
//! `request` checks the names, and the run encodes the values for the driver. Compiled languages use
//! [`crate::typed`].

use serde_json::{Map, Value};

const NAME_BYTES_MAX: usize = 128;

/// The rule that a name violates, if any. A name must be a plain identifier that the interpreter does not
/// reserve.
pub(crate) fn broken_rule(name: &str) -> Option<&'static str> {
    let mut letters = name.chars();
    let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if !starts_well || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return Some("a name is a letter or underscore followed by letters, digits or underscores (ASCII)");
    }
    if name.len() > NAME_BYTES_MAX {
        return Some("a name has at most 128 characters");
    }
    if name.starts_with("__") {
        return Some("names that start with two underscores belong to the interpreter");
    }
    None
}

/// The form in which a runtime takes its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VariableStyle {
    /// One JSON object.
    Json,
    /// Flattened for shells: name, kind, count, values.
    Shell,
    /// Declared with their types, and read when the program starts ([`crate::typed`]).
    Typed,
}

/// The variable fields of a driver message.
pub(crate) fn fields(style: VariableStyle, variables: &Map<String, Value>) -> Vec<String> {
    match style {
        _ if variables.is_empty() => Vec::new(),
        VariableStyle::Json => vec![Value::Object(variables.clone()).to_string()],
        VariableStyle::Typed => Vec::new(),
        VariableStyle::Shell => variables.iter().flat_map(|(name, value)| shell(name, value)).collect(),
    }
}

fn shell(name: &str, value: &Value) -> Vec<String> {
    let (kind, values) = match value {
        Value::Null => ("u", Vec::new()),
        Value::Array(list) => match list.iter().map(scalar).collect::<Option<Vec<_>>>() {
            Some(values) => ("a", values),
            None => ("j", vec![value.to_string()]),
        },
        Value::Object(map) => {
            let pairs = map.iter().map(|(key, value)| scalar(value).map(|text| [without_nul(key), text]));
            match pairs.collect::<Option<Vec<_>>>() {
                // A shell cannot hold an empty key.
                Some(pairs) if !map.contains_key("") => ("m", pairs.into_iter().flatten().collect()),
                _ => ("j", vec![value.to_string()]),
            }
        }
        other => ("s", scalar(other).into_iter().collect()),
    };
    let mut fields = vec![name.to_owned(), kind.to_owned(), values.len().to_string()];
    fields.extend(values);
    fields
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(without_nul(text)),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Removes NUL, which neither a shell variable nor a field of the protocol can hold.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_checked() {
        for good in ["x", "_x", "Data2", "a_b"] {
            assert_eq!(broken_rule(good), None, "{good}");
        }
        for bad in ["", "2x", "a-b", "a b", "ä", "__name__", "a;b", "x\n", "$x"] {
            assert!(broken_rule(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn shells_get_flat_fields() {
        let Value::Object(map) =
            json!({"s": "a'b\"c", "n": null, "l": [1, true, "x"], "m": {"k": 2}, "j": [[1]]})
        else {
            panic!()
        };
        let expected = [
            "s", "s", "1", "a'b\"c", "n", "u", "0", "l", "a", "3", "1", "true", "x", "m", "m", "2", "k", "2",
            "j", "j", "1", "[[1]]",
        ];
        assert_eq!(fields(VariableStyle::Shell, &map), expected);
    }
}
