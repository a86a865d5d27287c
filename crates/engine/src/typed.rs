//! Variables of compiled languages: declared by name and type, with values read when the program starts.
//!
//! Only names and types become source text. A name was checked to be a plain identifier, and a type comes from
//! the runtime's own table. Values travel as data in a file beside the program ([`encode`]). No text of the
//! caller is therefore pasted into code, and another value of the same type needs no new compilation.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::runtimes::Definition;

/// The kind of a variable, as far as a compiler needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Null,
    Boolean,
    /// An integer that fits 64 bits.
    Integer,
    /// An integer that does not fit 64 bits.
    Big,
    Float,
    Text,
    Booleans,
    Integers,
    Floats,
    Texts,
    /// Everything else: objects, and mixed, empty and nested lists.
    Nested,
}

impl Kind {
    #[cfg(test)]
    const ALL: [Self; 11] = [
        Self::Null,
        Self::Boolean,
        Self::Integer,
        Self::Big,
        Self::Float,
        Self::Text,
        Self::Booleans,
        Self::Integers,
        Self::Floats,
        Self::Texts,
        Self::Nested,
    ];

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) => of_number(number),
            Value::String(_) => Self::Text,
            Value::Array(list) => of_list(list),
            Value::Object(_) => Self::Nested,
        }
    }
}

fn of_number(number: &Number) -> Kind {
    let text = number.to_string();
    if text.contains(['.', 'e', 'E']) {
        Kind::Float
    } else if text.parse::<i64>().is_ok() {
        Kind::Integer
    } else {
        Kind::Big
    }
}

/// The kind of a list. A list of one kind has its own type; integers among fractions count as fractions.
fn of_list(list: &[Value]) -> Kind {
    let all = |kinds: &[Kind]| !list.is_empty() && list.iter().all(|value| kinds.contains(&Kind::of(value)));
    if all(&[Kind::Boolean]) {
        Kind::Booleans
    } else if all(&[Kind::Integer]) {
        Kind::Integers
    } else if all(&[Kind::Integer, Kind::Float]) {
        Kind::Floats
    } else if all(&[Kind::Text]) {
        Kind::Texts
    } else {
        Kind::Nested
    }
}

/// How a language declares variables: files of its folder with placeholders.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Declarations {
    /// Files of the folder. A line that contains `@place@` becomes one line per variable.
    pub(crate) files: Vec<String>,
    /// The line for each kind and place, in which `{name}` is the variable's name.
    pub(crate) kinds: BTreeMap<Kind, BTreeMap<String, String>>,
}

impl Declarations {
    /// The files for these variables, with their names.
    pub(crate) fn fill(
        &self,
        definition: &Definition,
        variables: &Map<String, Value>,
    ) -> Vec<(String, Vec<u8>)> {
        let shape = shape(variables);
        let file = |name: &String| {
            let template = String::from_utf8_lossy(definition.file(name));
            let mut text = String::with_capacity(template.len());
            for line in template.lines() {
                match place(line) {
                    None => text.extend([line, "\n"]),
                    Some(place) => shape.iter().for_each(|(name, kind)| {
                        let filled = self.kinds.get(kind).and_then(|places| places.get(place));
                        let filled = filled.map(|line| line.replace("{name}", name)).unwrap_or_default();
                        text.extend([filled.as_str(), "\n"]);
                    }),
                }
            }
            (name.clone(), text.into_bytes())
        };
        self.files.iter().map(file).collect()
    }

    /// What is missing in the folder, if anything. Only tests call it.
    #[cfg(test)]
    pub(crate) fn check(&self, definition: &Definition) -> Result<(), String> {
        let mut places = Vec::new();
        for name in &self.files {
            let text = String::from_utf8_lossy(definition.file(name)).into_owned();
            if text.is_empty() {
                return Err(format!("{name} is not there"));
            }
            places.extend(text.lines().filter_map(place).map(str::to_owned));
        }
        for kind in Kind::ALL {
            let Some(lines) = self.kinds.get(&kind) else { return Err(format!("{kind:?} is not mapped")) };
            if let Some(missing) = places.iter().find(|place| !lines.contains_key(*place)) {
                return Err(format!("{kind:?} has no line for @{missing}@"));
            }
        }
        Ok(())
    }
}

fn place(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('@')?;
    let (name, _) = rest.split_once('@')?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())).then_some(name)
}

/// Names with their kinds, in the order in which the values are written.
fn shape(variables: &Map<String, Value>) -> Vec<(&str, Kind)> {
    let mut shape: Vec<(&str, Kind)> =
        variables.iter().map(|(name, value)| (name.as_str(), Kind::of(value))).collect();
    shape.sort();
    shape
}

/// Encodes the values in the order of their names, each on separate lines. A letter gives the kind: `n` null,
/// `t` and `f` the booleans, `i` and `I` integers, `d` other numbers, `s` the length in bytes of the text that
/// follows, `[` the number of values that follow, `{` the number of pairs of text and value that follow.
pub(crate) fn encode(variables: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, _) in shape(variables) {
        write(&variables[name], &mut bytes);
    }
    bytes
}

fn write(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.extend(b"n\n"),
        Value::Bool(true) => bytes.extend(b"t\n"),
        Value::Bool(false) => bytes.extend(b"f\n"),
        Value::Number(number) => {
            let letter = match of_number(number) {
                Kind::Integer => 'i',
                Kind::Big => 'I',
                _ => 'd',
            };
            bytes.extend(format!("{letter}{number}\n").into_bytes());
        }
        Value::String(text) => write_text(text, bytes),
        Value::Array(list) => {
            bytes.extend(format!("[{}\n", list.len()).into_bytes());
            list.iter().for_each(|value| write(value, bytes));
        }
        Value::Object(map) => {
            bytes.extend(format!("{{{}\n", map.len()).into_bytes());
            for (key, value) in map {
                write_text(key, bytes);
                write(value, bytes);
            }
        }
    }
}

fn write_text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend(format!("s{}\n{text}\n", text.len()).into_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn kinds_are_told_from_values() {
        let big: Value = serde_json::from_str("123456789012345678901234567890").unwrap();
        for (value, kind) in [
            (json!(null), Kind::Null),
            (json!(true), Kind::Boolean),
            (json!(-5), Kind::Integer),
            (big, Kind::Big),
            (json!(1.5), Kind::Float),
            (json!("x"), Kind::Text),
            (json!([true]), Kind::Booleans),
            (json!([1, 2]), Kind::Integers),
            (json!([1, 2.5]), Kind::Floats),
            (json!(["a"]), Kind::Texts),
            (json!([]), Kind::Nested),
            (json!([1, "a"]), Kind::Nested),
            (json!({"a": 1}), Kind::Nested),
        ] {
            assert_eq!(Kind::of(&value), kind, "{value}");
        }
    }

    #[test]
    fn values_are_counted_and_never_quoted() {
        let text = "a\"b\\\n*/ \\u0022 ü";
        let bytes = encode(&map(json!({"z": [1, null], "a": text, "m": {"k": false}})));
        let expected = format!("s{}\n{text}\n{{1\ns1\nk\nf\n[2\ni1\nn\n", text.len());
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn the_shape_depends_on_names_and_types_only() {
        let one = map(json!({"b": "x", "a": 1}));
        let other = map(json!({"a": 99, "b": "*/ \" evil"}));
        assert_eq!(shape(&one), shape(&other));
        assert_ne!(shape(&one), shape(&map(json!({"a": 1.5, "b": "x"}))));
    }

    #[test]
    fn places_are_lower_case_words_between_signs() {
        assert_eq!(place("// @declare@"), Some("declare"));
        for none in ["a@b", "@@", "@Override", "x @A@", "mail@x.y@z"] {
            assert_eq!(place(none), None, "{none}");
        }
    }
}
