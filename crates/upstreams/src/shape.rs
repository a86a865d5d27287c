//! Shapes: what results of a tool look like, learned from results. A shape has types and names of fields, never values.
//!
//! An object whose keys look like data (many of them, or no plain names) becomes a map without keys, so that no
//! identifier of a result is remembered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::Dialect;

const DEPTH_MAX: usize = 5;
/// The most parts of a shape. What lies deeper in a larger one is anything.
const PARTS_MAX: usize = 300;
/// The most values of a result that are looked at.
const VALUES_LOOKED_AT: usize = 20_000;
const FIELDS_MAX: usize = 24;
const ITEMS_LOOKED_AT: usize = 50;
const KINDS_MAX: usize = 4;
const KEY_BYTES_MAX: usize = 40;
/// More digits than this in a key look like an identifier of data.
const KEY_DIGITS_MAX: usize = 2;
const RENDERED_CHARACTERS_MAX: usize = 600;

/// What values look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    Null,
    Bool,
    Int,
    Float,
    Text,
    /// A list, and what its items look like, if any were seen.
    List(Option<Box<Shape>>),
    /// Fields, and whether each was always there.
    Object(BTreeMap<String, Field>),
    /// An object whose keys are data.
    Map(Option<Box<Shape>>),
    /// One of several.
    Either(Vec<Shape>),
    /// Anything.
    Any,
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Field {
    shape: Shape,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_optional: bool,
}

impl Shape {
    /// The shape of a value.
    pub(crate) fn of(value: &Value) -> Self {
        let mut left = VALUES_LOOKED_AT;
        Self::at(value, 0, &mut left).bounded()
    }

    fn at(value: &Value, depth: usize, left: &mut usize) -> Self {
        if *left == 0 {
            return Self::Any;
        }
        *left -= 1;
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) => {
                let text = number.to_string();
                if text.contains(['.', 'e', 'E']) { Self::Float } else { Self::Int }
            }
            Value::String(_) => Self::Text,
            _ if depth >= DEPTH_MAX => Self::Any,
            Value::Array(items) => Self::List(Self::common(items.iter(), depth + 1, left)),
            Value::Object(fields) => {
                if fields.len() > FIELDS_MAX || !fields.keys().all(|key| is_name(key)) {
                    return Self::Map(Self::common(fields.values(), depth + 1, left));
                }
                let mut field = |value| Field { shape: Self::at(value, depth + 1, left), is_optional: false };
                Self::Object(fields.iter().map(|(key, value)| (key.clone(), field(value))).collect())
            }
        }
    }

    /// What the first values look like, as long as values are left to look at.
    fn common<'v>(
        values: impl Iterator<Item = &'v Value>,
        depth: usize,
        left: &mut usize,
    ) -> Option<Box<Self>> {
        let mut all: Option<Self> = None;
        for value in values.take(ITEMS_LOOKED_AT) {
            if *left == 0 && all.is_some() {
                break;
            }
            let shape = Self::at(value, depth, left);
            all = Some(match all {
                Some(known) => known.joined(shape),
                None => shape,
            });
        }
        all.map(Box::new)
    }

    /// What both look like.
    pub(crate) fn merge(self, other: Self) -> Self {
        self.joined(other).bounded()
    }

    /// The shape with at most [`PARTS_MAX`] parts: the deepest levels are anything in a larger one.
    fn bounded(mut self) -> Self {
        let mut depth = DEPTH_MAX;
        while self.parts() > PARTS_MAX {
            self = self.cut(depth);
            depth = depth.saturating_sub(1);
        }
        self
    }

    fn parts(&self) -> usize {
        1 + match self {
            Self::List(item) | Self::Map(item) => item.as_ref().map_or(0, |item| item.parts()),
            Self::Object(fields) => fields.values().map(|field| field.shape.parts()).sum(),
            Self::Either(kinds) => kinds.iter().map(Self::parts).sum(),
            _ => 0,
        }
    }

    /// The shape down to that many levels.
    fn cut(self, depth: usize) -> Self {
        let deeper = |shape: Self| shape.cut(depth.saturating_sub(1));
        let boxed = |item: Option<Box<Self>>| item.map(|item| Box::new(deeper(*item)));
        match self {
            Self::List(_) | Self::Map(_) | Self::Object(_) | Self::Either(_) if depth == 0 => Self::Any,
            Self::List(item) => Self::List(boxed(item)),
            Self::Map(item) => Self::Map(boxed(item)),
            Self::Object(fields) => {
                let field = |field: Field| Field { shape: deeper(field.shape), ..field };
                Self::Object(fields.into_iter().map(|(key, one)| (key, field(one))).collect())
            }
            Self::Either(kinds) => Self::Either(kinds.into_iter().map(deeper).collect()),
            plain => plain,
        }
    }

    fn joined(self, other: Self) -> Self {
        let boxed = |one: Option<Box<Self>>, other: Option<Box<Self>>| match (one, other) {
            (Some(one), Some(other)) => Some(Box::new(one.joined(*other))),
            (one, other) => one.or(other),
        };
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (Self::Int, Self::Float) | (Self::Float, Self::Int) => Self::Float,
            (Self::List(one), Self::List(other)) => Self::List(boxed(one, other)),
            (Self::Map(one), Self::Map(other)) => Self::Map(boxed(one, other)),
            (Self::Object(one), Self::Object(other)) => merge_fields(one, other),
            (Self::Map(map), Self::Object(fields)) | (Self::Object(fields), Self::Map(map)) => {
                let shapes = fields.into_values().map(|field| field.shape).reduce(Self::joined);
                Self::Map(boxed(map, shapes.map(Box::new)))
            }
            (Self::Either(all), one) | (one, Self::Either(all)) => add_kind(all, one),
            (one, other) => Self::Either(vec![one, other]),
        }
    }

    /// The type in a language.
    pub(crate) fn render(&self, dialect: Dialect) -> String {
        let mut text = String::new();
        self.put(dialect, &mut text);
        match text.char_indices().nth(RENDERED_CHARACTERS_MAX) {
            Some(_) => self.outline(dialect),
            None => text,
        }
    }

    /// The type without what is inside.
    fn outline(&self, dialect: Dialect) -> String {
        let (list, object) = match dialect {
            Dialect::Python => ("list", "dict"),
            Dialect::TypeScript => ("unknown[]", "Record<string, unknown>"),
        };
        match self {
            Self::List(_) => list.to_owned(),
            Self::Object(_) | Self::Map(_) => object.to_owned(),
            other => {
                let mut text = String::new();
                if let Self::Either(_) = other {
                    return any(dialect).to_owned();
                }
                other.put(dialect, &mut text);
                text
            }
        }
    }

    fn put(&self, dialect: Dialect, text: &mut String) {
        let is_python = dialect == Dialect::Python;
        match self {
            Self::Null => text.push_str(if is_python { "None" } else { "null" }),
            Self::Bool => text.push_str(if is_python { "bool" } else { "boolean" }),
            Self::Int => text.push_str(if is_python { "int" } else { "number" }),
            Self::Float => text.push_str(if is_python { "float" } else { "number" }),
            Self::Text => text.push_str(if is_python { "str" } else { "string" }),
            Self::Any => text.push_str(any(dialect)),
            Self::List(item) => {
                let inner = item.as_ref().map_or(any(dialect).to_owned(), |item| item.nested(dialect));
                text.push_str(&if is_python { format!("list[{inner}]") } else { format!("Array<{inner}>") });
            }
            Self::Map(item) => {
                let inner = item.as_ref().map_or(any(dialect).to_owned(), |item| item.nested(dialect));
                let written = if is_python {
                    format!("dict[str, {inner}]")
                } else {
                    format!("Record<string, {inner}>")
                };
                text.push_str(&written);
            }
            Self::Object(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(key, field)| {
                        let mark = if field.is_optional { "?" } else { "" };
                        format!("{key}{mark}: {}", field.shape.nested(dialect))
                    })
                    .collect();
                text.push_str(&format!("{{{}}}", fields.join(", ")));
            }
            Self::Either(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| kind.nested(dialect)).collect();
                text.push_str(&kinds.join(" | "));
            }
        }
    }

    fn nested(&self, dialect: Dialect) -> String {
        let mut text = String::new();
        self.put(dialect, &mut text);
        text
    }
}

fn any(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Python => "Any",
        Dialect::TypeScript => "unknown",
    }
}

fn merge_fields(one: BTreeMap<String, Field>, mut other: BTreeMap<String, Field>) -> Shape {
    let mut fields = BTreeMap::new();
    for (key, field) in one {
        let merged = match other.remove(&key) {
            Some(second) => Field {
                is_optional: field.is_optional || second.is_optional,
                shape: field.shape.joined(second.shape),
            },
            None => Field { is_optional: true, ..field },
        };
        fields.insert(key, merged);
    }
    fields.extend(other.into_iter().map(|(key, field)| (key, Field { is_optional: true, ..field })));
    if fields.len() <= FIELDS_MAX {
        return Shape::Object(fields);
    }
    let shapes = fields.into_values().map(|field| field.shape).reduce(Shape::joined);
    Shape::Map(shapes.map(Box::new))
}

fn add_kind(mut all: Vec<Shape>, one: Shape) -> Shape {
    let kinds = match one {
        Shape::Either(kinds) => kinds,
        one => vec![one],
    };
    for kind in kinds {
        let same = |known: &Shape| std::mem::discriminant(known) == std::mem::discriminant(&kind);
        match all.iter().position(same) {
            Some(place) => {
                let known = all.swap_remove(place);
                all.push(known.joined(kind));
            }
            None => all.push(kind),
        }
    }
    if all.len() > KINDS_MAX { Shape::Any } else { Shape::Either(all) }
}

/// Whether a key looks like the name of a field, and not like data.
fn is_name(key: &str) -> bool {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(&byte));
    let digits = key.bytes().filter(u8::is_ascii_digit).count();
    let first = key.bytes().next().unwrap_or(b'0');
    is_plain && !first.is_ascii_digit() && digits <= KEY_DIGITS_MAX && key.len() <= KEY_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn python(values: &[Value]) -> String {
        values.iter().map(Shape::of).reduce(Shape::merge).unwrap().render(Dialect::Python)
    }

    #[test]
    fn shapes_have_names_and_types_and_no_values() {
        let value =
            json!({"id": 7, "title": "hunter2", "tags": ["a"], "author": {"login": "x"}, "score": 1.5});
        assert_eq!(
            python(&[value]),
            "{author: {login: str}, id: int, score: float, tags: list[str], title: str}"
        );
        let shape = Shape::of(&json!([{"a": 1}, {"a": null, "b": true}]));
        assert_eq!(shape.render(Dialect::TypeScript), "Array<{a: number | null, b?: boolean}>");
    }

    #[test]
    fn keys_that_are_data_are_not_remembered() {
        let users = json!({"alice@example.org": {"n": 1}, "bob@example.org": {"n": 2}});
        assert_eq!(python(&[users]), "dict[str, {n: int}]");
        assert_eq!(python(&[json!({"user12345": 1})]), "dict[str, int]");
        let many: serde_json::Map<String, Value> = (0..30u8)
            .map(|n| (format!("k{}", char::from(b'a' + n % 26)).repeat(1 + usize::from(n / 26)), json!(1)))
            .collect();
        assert_eq!(python(&[Value::Object(many)]), "dict[str, int]");
    }

    #[test]
    fn what_differs_is_merged_within_bounds() {
        assert_eq!(python(&[json!(1), json!(1.5)]), "float");
        assert_eq!(python(&[json!([]), json!(["x"])]), "list[str]");
        assert_eq!(python(&[json!(1), json!("a"), json!(null), json!([]), json!({})]), "Any");
        let mut deep = json!(1);
        for _ in 0..50 {
            deep = json!({ "a": deep });
        }
        assert!(python(&[deep]).len() < 100);
    }
    #[test]
    fn a_shape_has_a_bounded_number_of_parts() {
        // 24 fields on four levels are 346,201 parts.
        fn wide(name: &str, depth: usize) -> Value {
            let field = |letter: u8| {
                (
                    format!("{name}{}", char::from(letter)),
                    match depth {
                        0 => json!(1),
                        depth => wide(name, depth - 1),
                    },
                )
            };
            Value::Object((b'a'..b'a' + 24).map(field).collect())
        }
        let one = Shape::of(&wide("f", 3));
        assert!(one.parts() <= PARTS_MAX && matches!(one, Shape::Object(_)), "{}", one.parts());
        let narrow = |name: &str| json!({ name: { "a": 1, "b": { "c": [1] } } });
        let mut all = Shape::of(&narrow("first"));
        for letter in b'a'..=b'z' {
            let other = json!({ "x": { format!("k{}", char::from(letter)): wide("g", 1) } });
            all = all.merge(Shape::of(&other));
            assert!(all.parts() <= PARTS_MAX, "{}", all.parts());
        }
        assert_eq!(python(&[narrow("a")]), "{a: {a: int, b: {c: list[int]}}}");
    }
}
