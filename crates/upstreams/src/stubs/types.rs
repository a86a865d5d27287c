//! Types of JSON Schema, written for a language. References outside of the schema are not followed.

use serde_json::Value;

use super::{is_identifier, parameters, quoted};
use crate::host::Dialect;

/// How much is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// For a reader: objects with their fields, in both languages.
    Readable,
    /// For a compiler.
    Valid,
    /// Without what is inside of objects and lists.
    Outline,
}

const DEPTH_MAX: usize = 4;
const FIELDS_MAX: usize = 12;
const LITERALS_MAX: usize = 12;
const UNION_MAX: usize = 6;

/// The type of a schema. `root` is where its references begin.
pub(super) fn type_of(schema: &Value, root: &Value, dialect: Dialect, style: Style) -> String {
    Writer { root, dialect, style }.write(schema, 0)
}

struct Writer<'a> {
    root: &'a Value,
    dialect: Dialect,
    style: Style,
}

impl Writer<'_> {
    fn is_python(&self) -> bool {
        self.dialect == Dialect::Python
    }

    fn any(&self) -> String {
        if self.is_python() { "Any".to_owned() } else { "unknown".to_owned() }
    }

    fn write(&self, schema: &Value, depth: usize) -> String {
        let Value::Object(fields) = schema else { return self.any() };
        if depth > DEPTH_MAX {
            return self.any();
        }
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return target.map_or(self.any(), |target| self.write(target, depth + 1));
        }
        if let Some(Value::Array(values)) = fields.get("enum") {
            return self.literals(values);
        }
        if let Some(value) = fields.get("const") {
            return self.literals(std::slice::from_ref(value));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(all)) = fields.get(key) {
                return self.union(all.iter().map(|one| self.write(one, depth + 1)));
            }
        }
        if let (None, Some(Value::Array(all))) = (fields.get("type"), fields.get("allOf")) {
            let written = all.iter().map(|one| self.write(one, depth + 1)).find(|kind| *kind != self.any());
            return written.unwrap_or_else(|| self.any());
        }
        match fields.get("type") {
            Some(Value::String(kind)) => self.named(kind, schema, depth),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                self.union(kinds.map(|kind| self.named(kind, schema, depth)))
            }
            _ if fields.contains_key("properties") => self.object(schema, depth),
            _ => self.any(),
        }
    }

    fn named(&self, kind: &str, schema: &Value, depth: usize) -> String {
        let (python, other) = match kind {
            "string" => ("str", "string"),
            "integer" => ("int", "number"),
            "number" => ("float", "number"),
            "boolean" => ("bool", "boolean"),
            "null" => ("None", "null"),
            "array" => return self.list(schema, depth),
            "object" => return self.object(schema, depth),
            _ => return self.any(),
        };
        if self.is_python() { python.to_owned() } else { other.to_owned() }
    }

    fn list(&self, schema: &Value, depth: usize) -> String {
        let item = match (self.style, schema.get("items")) {
            (Style::Outline, _) | (_, None) => self.any(),
            (_, Some(items)) => self.write(items, depth + 1),
        };
        match self.is_python() {
            true if item == "Any" => "list".to_owned(),
            true => format!("list[{item}]"),
            false => format!("Array<{item}>"),
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> String {
        let all = parameters(schema);
        let is_plain = all.is_empty() || all.len() > FIELDS_MAX || self.style == Style::Outline;
        if is_plain || self.is_python() && self.style == Style::Valid {
            return self.map(schema, depth);
        }
        let fields: Vec<String> = all
            .iter()
            .map(|field| {
                let name = if is_identifier(field.name) { field.name.to_owned() } else { quoted(field.name) };
                let mark = if field.is_required { "" } else { "?" };
                format!("{name}{mark}: {}", self.write(field.schema, depth + 1))
            })
            .collect();
        format!("{{{}}}", fields.join(", "))
    }

    fn map(&self, schema: &Value, depth: usize) -> String {
        let inner = match (self.style, schema.get("additionalProperties")) {
            (Style::Outline, _) | (_, None) => self.any(),
            (_, Some(inner)) => self.write(inner, depth + 1),
        };
        match self.is_python() {
            true if inner == "Any" && self.style != Style::Valid => "dict".to_owned(),
            true => format!("dict[str, {inner}]"),
            false => format!("Record<string, {inner}>"),
        }
    }

    fn literals(&self, values: &[Value]) -> String {
        let is_plain = values.iter().all(|value| value.is_string() || value.is_number());
        if !is_plain || values.is_empty() || values.len() > LITERALS_MAX || self.style == Style::Outline {
            let is_text = values.iter().all(Value::is_string);
            return if is_text { self.named("string", &Value::Null, 0) } else { self.any() };
        }
        let written: Vec<String> =
            values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), quoted)).collect();
        match self.is_python() {
            true => format!("Literal[{}]", written.join(", ")),
            false => written.join(" | "),
        }
    }

    fn union(&self, kinds: impl Iterator<Item = String>) -> String {
        let mut written: Vec<String> = Vec::new();
        for kind in kinds {
            if !written.contains(&kind) {
                written.push(kind);
            }
        }
        match written.len() {
            0 => self.any(),
            count if count > UNION_MAX || written.contains(&self.any()) => self.any(),
            _ => written.join(" | "),
        }
    }
}
