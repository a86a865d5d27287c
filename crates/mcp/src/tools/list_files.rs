//! `list_files`: lists a directory of a workspace.

use engine::RunError;
use engine::workspace::{Entry, EntryKind, FilePath, Listing, Reach};
use rmcp::model::{CallToolResult, JsonObject};
use serde::Serialize;
use serde_json::json;

use super::files::FileAccess;
use super::{Effects, Needs, Offer, Scope, ToolEntry, answer, refused};
use crate::arguments::Refusal;
use crate::{render, schema};

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "list_files",
    title: "List files",
    description: "List files in a sandbox's /workspace with sizes.",
    effects: Effects::ReadsOnly,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &["sandbox_id", "path", "recursive"],
    input,
    output,
    call: |call| Box::pin(async move { list(&call.files(), call.given).await.into() }),
};

/// Answers the tool.
pub(super) async fn list(caller: &FileAccess<'_>, given: JsonObject) -> CallToolResult {
    let answered = async {
        let mut given = TOOL.arguments(given)?;
        let sandbox = given.required_sandbox()?.id;
        let path = given.text("path")?.unwrap_or_default();
        let path = FilePath::of_directory(&path).map_err(RunError::from)?;
        let reach = if given.truth("recursive")?.unwrap_or(false) { Reach::Recursive } else { Reach::Flat };
        let workspace = caller.workspace(&sandbox).await?;
        let listing = workspace.list(path.as_ref(), reach).await.map_err(RunError::from)?;
        Ok::<_, Refusal>(shown(&listing))
    };
    answered.await.unwrap_or_else(|error| refused(&error))
}

fn shown(listing: &Listing) -> CallToolResult {
    let mut lines: Vec<String> = listing.entries.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("[empty]".to_owned());
    }
    if !listing.is_complete {
        lines.push("[not everything is shown: list a directory by its path]".to_owned());
    }
    let entries = listing.entries.iter().map(EntryView::of).collect();
    answer(&ListView { entries, complete: listing.is_complete }, lines.join("\n"), false)
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Other => "other",
    }
}

/// The guest chooses file names. Characters that could end a line or move a cursor are escaped.
fn line(entry: &Entry) -> String {
    let path: String = entry.path.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match entry.kind {
        EntryKind::File => format!("{path}  {} bytes", entry.size_bytes),
        EntryKind::Directory if entry.is_unopened => format!("{path}/  (not opened)"),
        EntryKind::Directory => format!("{path}/"),
        EntryKind::Link | EntryKind::Other => format!("{path}  ({})", kind(entry.kind)),
    }
}

/// The entries of a directory.
#[derive(Serialize)]
struct ListView<'a> {
    entries: Vec<EntryView<'a>>,
    complete: bool,
}

#[derive(Serialize)]
struct EntryView<'a> {
    path: &'a str,
    kind: &'static str,
    modified_at: String,
    /// Only for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unopened: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nameless: bool,
}

impl<'a> EntryView<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self {
            path: &entry.path,
            kind: kind(entry.kind),
            modified_at: render::timestamp(entry.modified_ms),
            size_bytes: (entry.kind == EntryKind::File).then_some(entry.size_bytes),
            unopened: entry.is_unopened,
            nameless: entry.is_nameless,
        }
    }
}

/// Schema of the arguments of `list_files`.
fn input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
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

/// Schema of the result of `list_files`.
fn output() -> JsonObject {
    schema::object(json!({
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
            "error": schema::error()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_field_of_the_result() {
        let entry = EntryView {
            path: "",
            kind: "file",
            modified_at: String::new(),
            size_bytes: Some(1),
            unopened: true,
            nameless: true,
        };
        schema::assert_same_fields(&output(), &ListView { entries: vec![entry], complete: true });
    }
}
