//! Exports the audit: its lines as they are, or as events of the Open Cybersecurity Schema Framework.
//!
//! Every entry becomes an event of the class API Activity (6003, OCSF 1.3.0): calls of tools by the name of the tool,
//! other entries by their kind. What the class has no field for is in `unmapped`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::read::{ReadEntry, entries};

const CLASS: u32 = 6003;
const VERSION: &str = "1.3.0";

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// The lines of the chain.
    Jsonl,
    /// Events of the Open Cybersecurity Schema Framework, one per line.
    Ocsf,
}

/// Writes the entries since that time, one per line.
pub fn export(audit: &Path, since_ms: u64, format: ExportFormat, to: &mut dyn Write) -> io::Result<()> {
    entries(audit, since_ms, &mut |entry| match format {
        ExportFormat::Jsonl => writeln!(to, "{}", entry.line),
        ExportFormat::Ocsf => writeln!(to, "{}", ocsf(&entry)),
    })
}

/// What a tool does, as the class names it: its number and its name.
fn activity(tool: &str) -> (u32, &'static str) {
    match tool {
        "get_capabilities" | "list_files" | "read_file" | "sandbox_list" | "validate_code" | "wait" => {
            (2, "Read")
        }
        "sandbox_open" => (1, "Create"),
        "write_file" => (3, "Update"),
        "sandbox_close" => (4, "Delete"),
        _ => (99, "Other"),
    }
}

/// An entry as an event of the class API Activity.
pub fn ocsf(entry: &ReadEntry) -> Value {
    let data = entry.data();
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let tool = text("tool");
    let (activity_id, activity_name) = activity(tool.unwrap_or_default());
    let operation = tool.map_or_else(|| format!("audit.{}", entry.kind), str::to_owned);
    let (principal, label) = (text("principal").unwrap_or("server"), text("label"));
    let verdict = text("verdict");
    let outcome = text("outcome");
    let is_failed = verdict.is_some_and(|verdict| verdict != "allowed")
        || outcome.is_some_and(|name| !["completed", "running", "answered"].contains(&name));
    let (status_id, status) = if is_failed { (2, "Failure") } else { (1, "Success") };
    let (severity_id, severity) = if is_failed { (2, "Low") } else { (1, "Informational") };
    let code = text("code").or_else(|| text("error"));
    let mut event = json!({
        "activity_id": activity_id,
        "activity_name": activity_name,
        "category_uid": 6,
        "category_name": "Application Activity",
        "class_uid": CLASS,
        "class_name": "API Activity",
        "type_uid": CLASS * 100 + activity_id,
        "time": entry.ms,
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "metadata": {
            "version": VERSION,
            "uid": format!("{}:{}", entry.instance, entry.seq),
            "sequence": entry.seq,
            "log_name": "audit",
            "product": { "name": "Palisade", "vendor_name": "Palisade", "version": env!("CARGO_PKG_VERSION") },
        },
        "actor": { "user": { "uid": principal, "name": label.unwrap_or(principal) } },
        "src_endpoint": { "uid": principal, "name": label.unwrap_or(principal) },
        "api": {
            "operation": operation,
            "service": { "name": "palisade", "uid": entry.instance },
            "request": { "uid": format!("{}:{}", entry.instance, entry.seq) },
        },
        "unmapped": { "kind": entry.kind, "data": data },
    });
    if let Some(code) = code {
        event["status_detail"] = json!(code);
        event["api"]["response"] = json!({ "error": code });
    }
    event
}
