//! What each tool takes and gives, as JSON Schema written by hand.
//!
//! Kept to what every client understands: one type per property, no formats, no null, no references. Inputs
//! are closed objects (`variables` is the one open place); outputs may gain properties in later versions.

use policy::Policy;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Properties of `run`.
pub(crate) const RUN: [&str; 9] =
    ["language", "code", "args", "stdin", "variables", "inputs", "sandbox_id", "timeout_ms", "limits"];
/// Properties of one of its `inputs`.
pub(crate) const INPUT: [&str; 3] = ["path", "text", "base64"];
/// Properties of its `limits`.
pub(crate) const LIMITS: [&str; 7] =
    ["memory_mb", "cpus", "processes", "disk_mb", "open_files", "output_kb", "wait_ms"];
/// Properties of `sandbox_open`.
pub(crate) const SANDBOX_OPEN: [&str; 3] = ["name", "limits", "ttl_s"];
/// Properties of its `limits`.
pub(crate) const SANDBOX_LIMITS: [&str; 5] = ["memory_mb", "cpus", "processes", "disk_mb", "open_files"];
/// Properties of `wait`.
pub(crate) const WAIT: [&str; 3] = ["run_id", "timeout_ms", "cancel"];

/// Arguments of `run`; the languages that work here, the limits in force.
pub(crate) fn run_input(languages: &[String], policy: &Policy) -> JsonObject {
    let Policy { defaults, maxima, .. } = policy;
    let timeout = format!("Default {}, at most {}", defaults.wall_ms, maxima.wall_ms);
    let limits = format!(
        "Defaults: memory_mb {}, cpus {}, processes {}, disk_mb {}, open_files {}, output_kb {}; clamped to the maxima of get_capabilities",
        defaults.memory_bytes >> 20,
        f64::from(defaults.cpus_milli) / 1000.0,
        defaults.processes,
        defaults.disk_bytes >> 20,
        defaults.open_files,
        defaults.output_bytes >> 10,
    );
    object(json!({
        "type": "object",
        "properties": {
            "language": { "type": "string", "enum": languages },
            "code": { "type": "string", "description": "The whole program" },
            "args": { "type": "array", "items": { "type": "string" }, "description": "Its arguments" },
            "stdin": { "type": "string", "description": "Its standard input; absent: empty" },
            "variables": {
                "type": "object",
                "description": "Name to any JSON value, bound as native values before the program starts",
                "additionalProperties": true
            },
            "inputs": {
                "type": "array",
                "description": "Placed in the working directory before the program starts",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "description": "Relative, e.g. data/in.csv" },
                        "text": { "type": "string", "description": "Content; or give base64" },
                        "base64": { "type": "string", "description": "Content that is not text" }
                    },
                    "required": ["path"],
                    "additionalProperties": false
                }
            },
            "sandbox_id": { "type": "string", "description": "Run there; absent: in a fresh sandbox" },
            "timeout_ms": { "type": "integer", "minimum": 1, "description": timeout },
            "limits": {
                "type": "object",
                "description": limits,
                "properties": {
                    "memory_mb": { "type": "integer", "minimum": 1 },
                    "cpus": { "type": "number", "exclusiveMinimum": 0 },
                    "processes": { "type": "integer", "minimum": 1 },
                    "disk_mb": { "type": "integer", "minimum": 1 },
                    "open_files": { "type": "integer", "minimum": 1 },
                    "output_kb": { "type": "integer", "minimum": 1 },
                    "wait_ms": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "A longer run answers outcome running with a run_id for wait; default 45000"
                    }
                },
                "additionalProperties": false
            }
        },
        "required": ["language", "code"],
        "additionalProperties": false
    }))
}

/// How a run can end.
const OUTCOMES: [&str; 13] = [
    "completed",
    "failed",
    "compile_failed",
    "timed_out",
    "out_of_memory",
    "disk_full",
    "process_limit",
    "output_limit",
    "killed",
    "cancelled",
    "running",
    "refused",
    "unavailable",
];

/// Files that a run made or changed.
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

/// Result of `run`.
pub(crate) fn run_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "outcome": { "type": "string", "enum": OUTCOMES },
            "exit_code": { "type": "integer" },
            "signal": { "type": "integer" },
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "truncated": {
                "type": "object",
                "properties": {
                    "stdout_bytes": { "type": "integer" },
                    "stderr_bytes": { "type": "integer" },
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
            "run_id": { "type": "string" },
            "sandbox_id": { "type": "string" },
            "isolation": { "type": "object", "properties": { "backend": { "type": "string" } } },
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

/// Arguments of `sandbox_open`.
pub(crate) fn sandbox_open_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "For people" },
            "limits": {
                "type": "object",
                "description": "As of run, for the whole sandbox",
                "properties": {
                    "memory_mb": { "type": "integer", "minimum": 1 },
                    "cpus": { "type": "number", "exclusiveMinimum": 0 },
                    "processes": { "type": "integer", "minimum": 1 },
                    "disk_mb": { "type": "integer", "minimum": 1 },
                    "open_files": { "type": "integer", "minimum": 1 }
                },
                "additionalProperties": false
            },
            "ttl_s": { "type": "integer", "minimum": 1, "description": "Kept so long without use; default a day" }
        },
        "additionalProperties": false
    }))
}

/// Arguments of `sandbox_close`.
pub(crate) fn sandbox_close_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": { "sandbox_id": { "type": "string" } },
        "required": ["sandbox_id"],
        "additionalProperties": false
    }))
}

/// One sandbox.
fn sandbox() -> Value {
    json!({
        "sandbox_id": { "type": "string" },
        "name": { "type": "string" },
        "created_at": { "type": "string" },
        "used_at": { "type": "string" },
        "expires_at": { "type": "string" },
        "runs": { "type": "integer" },
        "interpreters": { "type": "array", "items": { "type": "string" } },
        "limits": { "type": "object" },
        "clamped": { "type": "array", "items": { "type": "object" } },
        "outcome": { "type": "string" },
        "error": error()
    })
}

/// Result of `sandbox_open`.
pub(crate) fn sandbox_open_output() -> JsonObject {
    object(json!({ "type": "object", "properties": sandbox() }))
}

/// Result of `sandbox_list`.
pub(crate) fn sandbox_list_output() -> JsonObject {
    let item = json!({ "type": "object", "properties": sandbox() });
    object(json!({
        "type": "object",
        "properties": {
            "sandboxes": { "type": "array", "items": item },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

/// Result of `sandbox_close`.
pub(crate) fn sandbox_close_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "closed": { "type": "boolean" },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

/// Arguments of `wait`.
pub(crate) fn wait_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "run_id": { "type": "string" },
            "timeout_ms": { "type": "integer", "minimum": 0, "description": "How long to wait; default 45000" },
            "cancel": { "type": "boolean", "description": "End the run instead" }
        },
        "required": ["run_id"],
        "additionalProperties": false
    }))
}

/// What was shown, without its content.
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
                "uri": { "type": "string" }
            }
        }
    })
}

/// Something went wrong: what, why, what to do.
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
            "retry_after_ms": { "type": "integer" }
        },
        "required": ["code", "message"]
    })
}

/// No arguments.
pub(crate) fn nothing() -> JsonObject {
    object(json!({ "type": "object", "properties": {}, "additionalProperties": false }))
}

/// Result of `get_capabilities`.
pub(crate) fn capabilities_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "server": { "type": "object" },
            "languages": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string" },
                        "version": { "type": "string" },
                        "state": { "type": "string", "enum": ["working", "broken", "checking"] },
                        "reason": { "type": "string" },
                        "packages": { "type": "object" }
                    },
                    "required": ["name", "state"]
                }
            },
            "unavailable": { "type": "array", "items": { "type": "object" } },
            "limits": { "type": "object" },
            "bounds": { "type": "object" },
            "isolation": { "type": "object" },
            "policy": { "type": "object" },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

/// Arguments of `validate_code`.
pub(crate) fn validate_input(languages: &[String]) -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "language": { "type": "string", "enum": languages },
            "code": { "type": "string", "description": "The whole program" }
        },
        "required": ["language", "code"],
        "additionalProperties": false
    }))
}

/// Result of `validate_code`.
pub(crate) fn validate_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "valid": { "type": "boolean" },
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "line": { "type": "integer" },
                        "column": { "type": "integer" },
                        "message": { "type": "string" }
                    },
                    "required": ["message"]
                }
            },
            "missing_imports": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "module": { "type": "string" },
                        "line": { "type": "integer" },
                        "remedy": { "type": "string" }
                    },
                    "required": ["module"]
                }
            },
            "notes": { "type": "array", "items": { "type": "string" } },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

pub(super) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
