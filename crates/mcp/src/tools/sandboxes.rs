//! `sandbox_open`, `sandbox_list`, `sandbox_close`: persistent sandboxes.

use engine::packages::{InstallReport, PackageVersion, Wanted, wanted};
use engine::{Caller, ContextInfo, InstallRequest, OpenRequest, RunError};
use engine::{SandboxAddress, SandboxInfo, unknown_sandbox};
use policy::Clamp;
use rmcp::model::{CallToolResult, JsonObject};
use serde::Serialize;
use serde_json::{Value, json};

use super::following::{OnDisconnect, patience};
use super::install::{self, Followed, PACKAGES};
use super::{Effects, ISOLATION, Needs, Offer, Scope, ToolCall, ToolEntry, answer, limits_of, refused};
use crate::arguments::Refusal;
use crate::render;
use crate::{Server, schema};

/// Properties of its `limits`.
const LIMITS: [&str; 6] = ["memory_mb", "cpus", "processes", "disk_mb", "open_files", ISOLATION];

/// The language of a bare package of `sandbox_open`.
const BARE_LANGUAGE: &str = "python";

/// `sandbox_open`.
pub(super) const OPEN: ToolEntry = ToolEntry {
    name: "sandbox_open",
    title: "Open a sandbox",
    description: "Open a sandbox that lasts: files stay, and so do variables, imports and functions of \
Python, JavaScript, TypeScript and Bash. Pass its sandbox_id to run.",
    effects: Effects::Changes,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &["name", "limits", "ttl_s", "packages", "access"],
    input: open_input,
    output: open_output,
    call: |call| Box::pin(async move { open(call).await.into() }),
};

/// `sandbox_list`.
pub(super) const LIST: ToolEntry = ToolEntry {
    name: "sandbox_list",
    title: "List sandboxes",
    description: "List your open sandboxes.",
    effects: Effects::ReadsOnly,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &[],
    input: |_| schema::nothing(),
    output: list_output,
    call: |call| Box::pin(async move { list(call.server, call.caller, call.given).await.into() }),
};

/// `sandbox_close`.
pub(super) const CLOSE: ToolEntry = ToolEntry {
    name: "sandbox_close",
    title: "Close a sandbox",
    description: "Close a sandbox: everything in it ends and its files are removed. ID#NAME: end only those interpreters.",
    effects: Effects::DestroysOnce,
    scope: Scope::Sandbox,
    needs: Needs::Language,
    properties: &["sandbox_id"],
    input: close_input,
    output: close_output,
    call: |call| Box::pin(async move { close(call.server, call.caller, call.given).await.into() }),
};

/// Answers `sandbox_open`.
async fn open(call: ToolCall<'_>) -> CallToolResult {
    let ToolCall { server, caller, given, context, wall_lists, .. } = call;
    let (request, packages) = match asked(given) {
        Ok((request, packages)) => (OpenRequest { wall_lists, ..request }, packages),
        Err(error) => return refused(&error),
    };
    let sandboxes = server.runs.sandboxes();
    let (mut info, clamped) = match sandboxes.open(caller, request).await {
        Ok(opened) => opened,
        Err(error) => return refused(&error),
    };
    let mut text = format!("sandbox_id: {}", info.id);
    for clamp in &clamped {
        text.push_str(&format!("\nnote: {} is {}, not {} as asked", clamp.limit, clamp.given, clamp.asked));
    }
    let mut continues = None;
    if !packages.is_empty() {
        let language = BARE_LANGUAGE.to_owned();
        let request = InstallRequest { language, packages, sandbox: Some(info.id.clone()) };
        let waiting = (context, patience(None), OnDisconnect::Stop);
        match install::follow(server, caller, (request, None), waiting).await.map(ended) {
            Ok(Ok(installed)) => {
                text.push_str(&format!("\ninstalled: {}", crate::text::packages(&installed.packages)));
                info.packages = sandboxes.packages(caller, &info.id).await.unwrap_or_default();
            }
            Ok(Err(Unended::Continues(run_id))) => {
                text.push_str(&format!("\ninstalling: call wait with run_id {run_id} to follow it"));
                continues = Some(run_id);
            }
            Ok(Err(Unended::Failed(error))) | Err(error) => {
                // A sandbox without what was asked for is of no use. One that cannot be closed now expires.
                sandboxes.close(caller, &info.id).await.ok();
                return refused(&error);
            }
        }
    }
    let (status, run_id) = (continues.as_ref().map(|_| "installing"), continues.as_deref());
    answer(&SandboxView { clamped: Some(&clamped), status, run_id, ..SandboxView::of(&info) }, text, false)
}

/// Why a sandbox does not have its packages yet.
enum Unended {
    Continues(String),
    Failed(RunError),
}

fn ended(followed: Followed) -> Result<InstallReport, Unended> {
    match followed {
        Followed::Continues(run) => Err(Unended::Continues(run.id().as_str().to_owned())),
        Followed::Ended(run) => match (&run.result.error, &run.result.installed) {
            (None, Some(installed)) => Ok(installed.clone()),
            (error, _) => Err(Unended::Failed(error.clone().unwrap_or_default())),
        },
    }
}

/// Answers `sandbox_list`.
async fn list(server: &Server, caller: &Caller, given: JsonObject) -> CallToolResult {
    if let Err(error) = LIST.arguments(given) {
        return refused(&error);
    }
    match server.runs.sandboxes().list(caller).await {
        Ok(list) => {
            let lines: Vec<String> = list.iter().map(line).collect();
            let text = if lines.is_empty() { "no sandbox is open".to_owned() } else { lines.join("\n") };
            answer(&ListView { sandboxes: list.iter().map(SandboxView::of).collect() }, text, false)
        }
        Err(error) => refused(&error),
    }
}

/// Answers `sandbox_close`.
async fn close(server: &Server, caller: &Caller, given: JsonObject) -> CallToolResult {
    let address = CLOSE.arguments(given).and_then(|mut given| given.required_sandbox());
    let SandboxAddress { id, context } = match address {
        Ok(address) => address,
        Err(error) => return refused(&error),
    };
    let sandboxes = server.runs.sandboxes();
    let closed = match &context {
        Some(context) => sandboxes.close_context(caller, &id, context).await,
        None => match sandboxes.close(caller, &id).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(unknown_sandbox()),
            Err(error) => Err(error),
        },
    };
    match closed {
        Ok(()) => {
            let context = context.as_ref().map(|context| context.as_str());
            answer(&ClosedView { sandbox_id: id.as_str(), context, closed: true }, "closed".to_owned(), false)
        }
        Err(error) => refused(&error),
    }
}

/// The sandbox, and the packages that are installed in it.
fn asked(given: JsonObject) -> Result<(OpenRequest, Vec<Wanted>), Refusal> {
    let mut arguments = OPEN.arguments(given)?;
    let packages = wanted(&arguments.texts(PACKAGES)?, BARE_LANGUAGE)?;
    let mut limits = arguments.object("limits", &LIMITS)?;
    let request = OpenRequest {
        name: arguments.text("name")?,
        ttl_s: arguments.whole("ttl_s")?,
        wall: limits.text(ISOLATION)?,
        wall_lists: Vec::new(),
        access: arguments.texts("access")?,
        packages: Vec::new(),
        install_progress: None,
        ask: limits_of(&mut limits, None)?,
    };
    Ok((request, packages))
}

/// One sandbox.
#[derive(Serialize)]
struct SandboxView<'a> {
    sandbox_id: &'a str,
    name: &'a str,
    created_at: String,
    used_at: String,
    expires_at: String,
    runs: u64,
    interpreters: &'a [String],
    contexts: Vec<ContextView<'a>>,
    limits: LimitsView,
    /// What its runs may ask for outside.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    access: &'a [String],
    /// What is installed in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    packages: Vec<&'a PackageVersion>,
    /// Of an installation that continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    /// Only in the answer of `sandbox_open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    clamped: Option<&'a [Clamp]>,
}

/// One interpreter of a context.
#[derive(Serialize)]
struct ContextView<'a> {
    name: &'a str,
    language: &'a str,
    state: &'static str,
}

impl<'a> ContextView<'a> {
    fn of(info: &'a ContextInfo) -> Self {
        let state = if info.is_awake { "awake" } else { "asleep" };
        Self { name: info.context.as_str(), language: &info.language, state }
    }
}

#[derive(Serialize)]
struct LimitsView {
    memory_mb: u64,
    cpus: f64,
    processes: u32,
    disk_mb: u64,
    open_files: u32,
}

/// All sandboxes of a caller.
#[derive(Serialize)]
struct ListView<'a> {
    sandboxes: Vec<SandboxView<'a>>,
}

/// A closed sandbox, or a context that was removed from it.
#[derive(Serialize)]
struct ClosedView<'a> {
    sandbox_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
    closed: bool,
}

impl<'a> SandboxView<'a> {
    fn of(info: &'a SandboxInfo) -> Self {
        Self {
            sandbox_id: info.id.as_str(),
            name: &info.name,
            created_at: render::timestamp(info.created_ms),
            used_at: render::timestamp(info.used_ms),
            expires_at: render::timestamp(info.expires_ms),
            runs: info.runs,
            interpreters: &info.awake,
            contexts: info.contexts.iter().map(ContextView::of).collect(),
            limits: LimitsView {
                memory_mb: info.limits.memory_bytes >> 20,
                cpus: f64::from(info.limits.cpus_milli) / 1000.0,
                processes: info.limits.processes,
                disk_mb: info.limits.disk_bytes >> 20,
                open_files: info.limits.open_files,
            },
            access: &info.access,
            packages: info.packages.iter().flat_map(|one| &one.packages).collect(),
            status: None,
            run_id: None,
            clamped: None,
        }
    }
}

fn line(info: &SandboxInfo) -> String {
    let name = if info.name.is_empty() { String::new() } else { format!(" ({})", info.name) };
    let awake = if info.awake.is_empty() { "asleep".to_owned() } else { info.awake.join(", ") };
    let asked: Vec<&str> =
        info.packages.iter().flat_map(|one| &one.requirements).map(String::as_str).collect();
    let packages = if asked.is_empty() { String::new() } else { format!(", packages {}", asked.join(" ")) };
    let until = render::timestamp(info.expires_ms);
    format!("{}{name}: {} runs, {awake}, until {until}{packages}", info.id, info.runs)
}

/// Schema of the arguments of `sandbox_open`.
fn open_input(offer: &Offer<'_>) -> JsonObject {
    let mut schema = base_open_input();
    super::add_packages(&mut schema, offer, "pandas, npm:zod");
    super::add_access(&mut schema, offer, "What its runs may ask for");
    super::add_isolation(&mut schema, offer);
    schema
}

fn base_open_input() -> JsonObject {
    schema::object(json!({
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

/// Schema of the arguments of `sandbox_close`.
fn close_input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": { "sandbox_id": { "type": "string" } },
        "required": ["sandbox_id"],
        "additionalProperties": false
    }))
}

/// Schema of one sandbox.
fn one() -> Value {
    json!({
        "sandbox_id": { "type": "string" },
        "name": { "type": "string" },
        "created_at": { "type": "string" },
        "used_at": { "type": "string" },
        "expires_at": { "type": "string" },
        "runs": { "type": "integer" },
        "interpreters": { "type": "array", "items": { "type": "string" } },
        "contexts": { "type": "array", "items": { "type": "object" } },
        "limits": { "type": "object" },
        "access": { "type": "array", "items": { "type": "string" } },
        "packages": schema::packages(),
        "status": { "type": "string" },
        "run_id": { "type": "string" },
        "clamped": { "type": "array", "items": { "type": "object" } },
        "outcome": { "type": "string" },
        "error": schema::error()
    })
}

/// Schema of the result of `sandbox_open`.
fn open_output() -> JsonObject {
    schema::object(json!({ "type": "object", "properties": one() }))
}

/// Schema of the result of `sandbox_list`.
fn list_output() -> JsonObject {
    let item = json!({ "type": "object", "properties": one() });
    schema::object(json!({
        "type": "object",
        "properties": {
            "sandboxes": { "type": "array", "items": item },
            "outcome": { "type": "string" },
            "error": schema::error()
        }
    }))
}

/// Schema of the result of `sandbox_close`.
fn close_output() -> JsonObject {
    schema::object(json!({
        "type": "object",
        "properties": {
            "sandbox_id": { "type": "string" },
            "context": { "type": "string" },
            "closed": { "type": "boolean" },
            "outcome": { "type": "string" },
            "error": schema::error()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Policy;

    #[test]
    fn the_schemas_name_every_field_of_the_results() {
        let id = engine::SandboxId::parse(&format!("sbx_{}", "0".repeat(32))).unwrap();
        let info = SandboxInfo {
            id,
            name: String::new(),
            created_ms: 0,
            used_ms: 0,
            expires_ms: 0,
            runs: 0,
            awake: Vec::new(),
            contexts: Vec::new(),
            disk_bytes: 0,
            limits: sandbox::Limits::default(),
            access: vec!["web".to_owned()],
            packages: vec![engine::packages::InstalledPackages {
                ecosystem: engine::packages::Ecosystem::Pypi,
                requirements: vec!["a".to_owned()],
                packages: vec![PackageVersion { name: "a".to_owned(), version: "1".to_owned() }],
            }],
        };
        assert!(line(&info).ends_with(", packages a"), "{}", line(&info));
        let view = || SandboxView {
            clamped: Some(&[]),
            status: Some("installing"),
            run_id: Some(""),
            ..SandboxView::of(&info)
        };
        schema::assert_same_fields(&open_output(), &view());
        schema::assert_same_fields(&list_output(), &ListView { sandboxes: vec![view()] });
        schema::assert_same_fields(
            &close_output(),
            &ClosedView { sandbox_id: "", context: Some(""), closed: true },
        );
    }

    #[test]
    fn limits_are_those_of_the_schema() {
        let policy = Policy::built_in(1);
        let schema = open_input(&Offer { walls: &["native", "runc"], ..Offer::bare(&[], &policy) });
        let limits = schema["properties"]["limits"]["properties"].as_object().unwrap();
        assert_eq!(limits.keys().cloned().collect::<Vec<_>>(), LIMITS);
    }
}
