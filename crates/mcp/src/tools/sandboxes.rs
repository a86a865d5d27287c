//! `sandbox_open`, `sandbox_list`, `sandbox_close`: places that last.

use engine::{OpenRequest, Principal, SandboxId, SandboxInfo, unknown_sandbox};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::{answer, limits_of, refused};
use crate::arguments::{Arguments, Refusal};
use crate::render;
use crate::{Server, schema};

/// Their names.
pub(crate) const OPEN: &str = "sandbox_open";
pub(crate) const LIST: &str = "sandbox_list";
pub(crate) const CLOSE: &str = "sandbox_close";

const OPEN_DESCRIPTION: &str = "Open a sandbox that lasts: files stay, and so do variables, imports and functions of \
Python, JavaScript, TypeScript and Bash. Pass its sandbox_id to run.";
const LIST_DESCRIPTION: &str = "List your open sandboxes.";
const CLOSE_DESCRIPTION: &str = "Close a sandbox: everything in it ends and its files are removed.";

/// What clients see.
pub(crate) fn tools() -> [Tool; 3] {
    let annotations = |read_only: bool, destructive: bool, idempotent: bool| {
        ToolAnnotations::new()
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(false)
    };
    let close = Tool::new(CLOSE, CLOSE_DESCRIPTION, schema::sandbox_close_input())
        .with_title("Close a sandbox")
        .with_raw_output_schema(schema::sandbox_close_output().into())
        .with_annotations(annotations(false, true, true));
    let list = Tool::new(LIST, LIST_DESCRIPTION, schema::nothing())
        .with_title("List sandboxes")
        .with_raw_output_schema(schema::sandbox_list_output().into())
        .with_annotations(annotations(true, false, true));
    let open = Tool::new(OPEN, OPEN_DESCRIPTION, schema::sandbox_open_input())
        .with_title("Open a sandbox")
        .with_raw_output_schema(schema::sandbox_open_output().into())
        .with_annotations(annotations(false, false, false));
    [close, list, open]
}

/// Answers `sandbox_open`.
pub(crate) async fn open(server: &Server, principal: &Principal, given: JsonObject) -> CallToolResult {
    let request = match asked(given) {
        Ok(request) => request,
        Err(error) => return refused(&error),
    };
    match server.runs.sandboxes().open(principal, request).await {
        Ok((info, clamped)) => {
            let mut structured = shown(&info);
            structured["clamped"] = json!(clamped);
            let mut text = format!("sandbox_id: {}", info.id);
            for clamp in clamped {
                text.push_str(&format!(
                    "\nnote: {} is {}, not {} as asked",
                    clamp.limit, clamp.given, clamp.asked
                ));
            }
            answer(structured, text, false)
        }
        Err(error) => refused(&error),
    }
}

/// Answers `sandbox_list`.
pub(crate) async fn list(server: &Server, principal: &Principal, given: JsonObject) -> CallToolResult {
    if let Err(error) = Arguments::new("", &[], given) {
        return refused(&error);
    }
    match server.runs.sandboxes().list(principal).await {
        Ok(list) => {
            let lines: Vec<String> = list.iter().map(line).collect();
            let text = if lines.is_empty() { "no sandbox is open".to_owned() } else { lines.join("\n") };
            answer(json!({ "sandboxes": list.iter().map(shown).collect::<Vec<_>>() }), text, false)
        }
        Err(error) => refused(&error),
    }
}

/// Answers `sandbox_close`.
pub(crate) async fn close(server: &Server, principal: &Principal, given: JsonObject) -> CallToolResult {
    let id =
        Arguments::new("", &["sandbox_id"], given).and_then(|mut given| given.required_text("sandbox_id"));
    let id = match id {
        Ok(id) => SandboxId::parse(&id),
        Err(error) => return refused(&error),
    };
    let Some(id) = id else { return refused(&unknown_sandbox()) };
    match server.runs.sandboxes().close(principal, &id).await {
        Ok(true) => answer(json!({ "sandbox_id": id.as_str(), "closed": true }), "closed".to_owned(), false),
        Ok(false) => refused(&unknown_sandbox()),
        Err(error) => refused(&error),
    }
}

fn asked(given: JsonObject) -> Result<OpenRequest, Refusal> {
    let mut arguments = Arguments::new("", &schema::SANDBOX_OPEN, given)?;
    let mut limits = arguments.object("limits", &schema::SANDBOX_LIMITS)?;
    Ok(OpenRequest {
        name: arguments.text("name")?,
        ttl_s: arguments.whole("ttl_s")?,
        ask: limits_of(&mut limits, None)?,
    })
}

fn shown(info: &SandboxInfo) -> Value {
    json!({
        "sandbox_id": info.id.as_str(),
        "name": info.name,
        "created_at": render::timestamp(info.created_ms),
        "used_at": render::timestamp(info.used_ms),
        "expires_at": render::timestamp(info.expires_ms),
        "runs": info.runs,
        "interpreters": info.awake,
        "limits": {
            "memory_mb": info.limits.memory_bytes >> 20,
            "cpus": f64::from(info.limits.cpus_milli) / 1000.0,
            "processes": info.limits.processes,
            "disk_mb": info.limits.disk_bytes >> 20,
            "open_files": info.limits.open_files,
        },
    })
}

fn line(info: &SandboxInfo) -> String {
    let name = if info.name.is_empty() { String::new() } else { format!(" ({})", info.name) };
    let awake = if info.awake.is_empty() { "asleep".to_owned() } else { info.awake.join(", ") };
    format!("{}{name}: {} runs, {awake}, until {}", info.id, info.runs, render::timestamp(info.expires_ms))
}
