//! What the tools for files take and give; in the manner of [`super::schema`].

use rmcp::model::JsonObject;
use serde_json::json;

use super::schema::{error, object};

/// Properties of `read_file`.
pub(crate) const READ: [&str; 5] = ["sandbox_id", "path", "offset", "limit", "encoding"];
/// Properties of `write_file`.
pub(crate) const WRITE: [&str; 5] = ["sandbox_id", "path", "text", "base64", "append"];
/// Properties of `list_files`.
pub(crate) const LIST: [&str; 3] = ["sandbox_id", "path", "recursive"];

/// Arguments of `read_file`.
pub(crate) fn read_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "path": { "type": "string" },
            "offset": { "type": "integer", "minimum": 0, "description": "In bytes" },
            "limit": { "type": "integer", "minimum": 1, "description": "Bytes, default 20000" },
            "encoding": { "type": "string", "enum": ["text", "base64"] }
        },
        "required": ["sandbox_id", "path"],
        "additionalProperties": false
    }))
}

/// Result of `read_file`.
pub(crate) fn read_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "uri": { "type": "string" },
            "mime_type": { "type": "string" },
            "size_bytes": { "type": "integer" },
            "offset": { "type": "integer" },
            "next_offset": { "type": "integer" },
            "text": { "type": "string" },
            "base64": { "type": "string" },
            "download_url": { "type": "string" },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

/// Arguments of `write_file`.
pub(crate) fn write_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "path": { "type": "string" },
            "text": { "type": "string", "description": "Content; or give base64; neither: a link to PUT a large file to" },
            "base64": { "type": "string" },
            "append": { "type": "boolean" }
        },
        "required": ["sandbox_id", "path"],
        "additionalProperties": false
    }))
}

/// Result of `write_file`.
pub(crate) fn write_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "uri": { "type": "string" },
            "size_bytes": { "type": "integer" },
            "upload_url": { "type": "string" },
            "size_bytes_max": { "type": "integer" },
            "expires_at": { "type": "string" },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}

/// Arguments of `list_files`.
pub(crate) fn list_input() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "path": { "type": "string", "description": "Default: all of /workspace" },
            "recursive": { "type": "boolean" }
        },
        "required": ["sandbox_id"],
        "additionalProperties": false
    }))
}

/// Result of `list_files`.
pub(crate) fn list_output() -> JsonObject {
    object(json!({
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string" },
                        "kind": { "type": "string", "enum": ["file", "directory", "link", "other"] },
                        "size_bytes": { "type": "integer" },
                        "modified_at": { "type": "string" },
                        "unopened": { "type": "boolean" },
                        "nameless": { "type": "boolean" }
                    },
                    "required": ["path", "kind"]
                }
            },
            "complete": { "type": "boolean" },
            "outcome": { "type": "string" },
            "error": error()
        }
    }))
}
