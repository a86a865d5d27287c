//! Handwritten JSON Schema that several tools share. The schemas of a single tool are in that tool's file.
//!
//! The schemas use only features that every client understands: one type per property, no formats, no null,
//! no references. Inputs are closed objects, except `variables`. Outputs may gain properties in later
//! versions.

use rmcp::model::JsonObject;
use sandbox::Outcome;
use serde_json::{Value, json};

/// Schema of the files that a run created or changed.
fn artifacts() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "uri": { "type": "string" },
                "mime_type": { "type": "string" },
                "size_bytes": { "type": "integer" },
                "sha256": { "type": "string" },
                "download_url": { "type": "string" }
            }
        }
    })
}

/// Schema of the result of `run` and `wait`.
pub(crate) fn run_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "outcome": { "type": "string", "enum": Outcome::ALL.map(Outcome::name) },
            "exit_code": { "type": "integer" },
            "signal": { "type": "integer" },
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "truncated": {
                "type": "object",
                "properties": {
                    "stdout_bytes": { "type": "integer" },
                    "stderr_bytes": { "type": "integer" },
                    "value_bytes": { "type": "integer" },
                    "uri": { "type": "string" }
                }
            },
            "value": {
                "type": "object",
                "properties": { "repr": { "type": "string" }, "json": {}, "mime": { "type": "string" } },
                "required": ["repr"]
            },
            "displays": displays(),
            "error": error(),
            "compile": {
                "type": "object",
                "properties": { "cached": { "type": "boolean" }, "ms": { "type": "number" } }
            },
            "usage": {
                "type": "object",
                "properties": {
                    "wall_ms": { "type": "number" },
                    "cpu_ms": { "type": "number" },
                    "memory_peak_bytes": { "type": "integer" },
                    "processes_peak": { "type": "integer" },
                    "queued_ms": { "type": "number" },
                    "start_ms": { "type": "number" }
                }
            },
            "artifacts": artifacts(),
            "egress": egress(),
            "packages": packages(),
            "install_ms": { "type": "number" },
            "tools": tools_used(),
            "run_id": { "type": "string" },
            "sandbox_id": { "type": "string" },
            "context": { "type": "string" },
            "isolation": { "type": "object", "properties": { "backend": { "type": "string" }, "kernel": { "type": "string" } } },
            "clamped": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "limit": { "type": "string" },
                        "asked": { "type": "number" },
                        "given": { "type": "number" }
                    }
                }
            },
            "warnings": { "type": "array", "items": { "type": "string" } }
        },
        "required": ["outcome"]
    }))
}

/// Schema of what a run reached outside.
fn egress() -> Value {
    let one = json!({
        "host": { "type": "string" },
        "address": { "type": "string" },
        "connections": { "type": "integer" },
        "bytes_out": { "type": "integer" },
        "bytes_in": { "type": "integer" },
        "verdict": { "type": "string" }
    });
    json!({ "type": "array", "items": { "type": "object", "properties": one } })
}

/// Schema of packages with their versions.
pub(super) fn packages() -> Value {
    let one = json!({ "name": { "type": "string" }, "version": { "type": "string" } });
    json!({ "type": "array", "items": { "type": "object", "properties": one } })
}

/// Schema of the calls of other servers' tools.
fn tools_used() -> Value {
    let count = json!({ "type": "integer" });
    json!({ "type": "object", "properties": {
        "calls": count, "failed": count, "denied": count, "bytes": count,
        "by_server": { "type": "object", "additionalProperties": count },
        "pending": { "type": "array", "items": { "type": "string" } }
    } })
}

/// Schema of displays, without their content.
fn displays() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "mime": { "type": "string" },
                "size_bytes": { "type": "integer" },
                "width": { "type": "integer" },
                "height": { "type": "integer" },
                "text": { "type": "string" },
                "uri": { "type": "string" },
                "json": { "type": "object" },
                "json_uri": { "type": "string" }
            }
        }
    })
}

/// Schema of an error: what failed, why, and what to do next.
pub(super) fn error() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "line": { "type": "integer" },
            "column": { "type": "integer" },
            "cause": { "type": "string" },
            "remedy": { "type": "string" },
            "retryable": { "type": "boolean" },
            "retry_after_ms": { "type": "integer" },
            "rule": { "type": "string" },
            "approval_id": { "type": "string" }
        },
        "required": ["code", "message"]
    })
}

/// Schema of an empty argument object.
pub(crate) fn nothing() -> JsonObject {
    object(json!({ "type": "object", "properties": {}, "additionalProperties": false }))
}

/// Asserts that a value with every optional field set has the fields of the schema, at every level that the
/// schema describes. `outcome` and `error` belong to a refusal, which every tool can answer with.
#[cfg(test)]
pub(crate) fn assert_same_fields(schema: &JsonObject, value: &impl serde::Serialize) {
    let value = serde_json::to_value(value).unwrap();
    same_fields("", &Value::Object(schema.clone()), &value);
}

#[cfg(test)]
fn same_fields(place: &str, schema: &Value, value: &Value) {
    if let (Some(properties), Value::Object(fields)) = (schema["properties"].as_object(), value) {
        let is_own = |name: &&String| !["outcome", "error"].contains(&name.as_str());
        for name in properties.keys().filter(is_own) {
            assert!(fields.contains_key(name), "the schema promises {place}.{name}");
        }
        for (name, inner) in fields {
            assert!(properties.contains_key(name), "the schema does not know {place}.{name}");
            same_fields(&format!("{place}.{name}"), &properties[name], inner);
        }
    }
    if let (Some(items), Value::Array(list)) = (schema.get("items"), value) {
        list.iter().for_each(|inner| same_fields(&format!("{place}[]"), items, inner));
    }
}

pub(super) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
