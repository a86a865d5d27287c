//! The tools: one table, and one file per tool.
//!
//! An entry of [`TOOLS`] describes a tool completely: its published description, its schemas, the scope that
//! a caller needs, and the function that answers. To add a tool, write its file and add its entry.

pub(crate) mod attached;
mod bounds;
pub(crate) mod capabilities;
mod doubts;
pub(crate) mod files;
pub(crate) mod find_tools;
mod following;
pub(crate) mod install;
mod list_files;
mod read_file;
pub(crate) mod report;
pub(crate) mod run;
mod sandboxes;
mod validate;
pub(crate) mod wait;
mod write_file;

use std::sync::Arc;
use std::time::Duration;

use engine::access::Offered;
use engine::audit::DecisionRef;
use engine::packages::Ecosystem;
use engine::{CONTEXT_SEPARATOR, Caller, IDEMPOTENCY_CONFLICT, IDEMPOTENCY_INTERRUPTED, QUOTA_EXCEEDED};
use engine::{RunError, RunId, SandboxId, SandboxInfo};
use policy::{Ask, Policy, Scope, Scopes};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use sandbox::{BoxFuture, Kernel, OWN_KERNEL, Outcome};
use serde::Serialize;
use serde_json::Value;

pub use self::doubts::{doubt_argument, doubt_tool};
use self::files::FileAccess;
use super::approvals::GivenInput;
use super::arguments::{Arguments, Refusal, refusal};
use super::file_urls::FileUrls;
use super::message::IllTypedArguments;
use super::suggest::nearest;
use super::{Server, text};

/// The argument that names a sandbox, in every tool that has one.
pub(crate) const SANDBOX_ID: &str = "sandbox_id";

/// All tools, by name.
pub(crate) static TOOLS: [&ToolEntry; 12] = [
    &find_tools::TOOL,
    &capabilities::TOOL,
    &install::TOOL,
    &list_files::TOOL,
    &read_file::TOOL,
    &run::TOOL,
    &sandboxes::CLOSE,
    &sandboxes::LIST,
    &sandboxes::OPEN,
    &validate::TOOL,
    &wait::TOOL,
    &write_file::TOOL,
];

/// One tool.
pub(crate) struct ToolEntry {
    pub(crate) name: &'static str,
    title: &'static str,
    description: &'static str,
    effects: Effects,
    /// The scope that a caller needs.
    pub(crate) scope: Scope,
    needs: Needs,
    /// The arguments that it accepts; the same names as in its schema.
    properties: &'static [&'static str],
    input: fn(&Offer<'_>) -> JsonObject,
    output: fn() -> JsonObject,
    pub(crate) call: for<'a> fn(ToolCall<'a>) -> BoxFuture<'a, CallToolResponse>,
}

/// The effects of a call, as published to clients.
enum Effects {
    /// A call changes nothing.
    ReadsOnly,
    /// Each call adds something.
    Changes,
    /// A call changes something; repeating it has no further effect.
    Repeats,
    /// A call replaces or removes something.
    Destroys,
    /// A call replaces or removes something; repeating it has no further effect.
    DestroysOnce,
}

/// The limit that names a wall.
pub(crate) const ISOLATION: &str = "isolation";

/// A requirement without which a tool is not published.
#[derive(PartialEq, Eq)]
enum Needs {
    Nothing,
    /// At least one working language.
    Language,
    /// The same, and packages that can be installed.
    Packages,
    /// Servers whose tools programs can call, and a language for the programs.
    ToolServers,
}

/// The inputs of the published schemas.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub(crate) languages: &'a [String],
    pub(crate) policy: &'a Policy,
    /// The names of access, with what they are for.
    pub(crate) access: &'a [Offered],
    /// Where packages can be installed from.
    pub(crate) packages: &'a [Ecosystem],
    /// The names of the walls, the default first.
    pub(crate) walls: &'a [&'a str],
}

impl<'a> Offer<'a> {
    /// The offer of a server without access, packages and further walls.
    pub(crate) fn bare(languages: &'a [String], policy: &'a Policy) -> Self {
        Self { languages, policy, access: &[], packages: &[], walls: &[] }
    }
}

/// One call of a tool.
pub(crate) struct ToolCall<'a> {
    pub(crate) server: &'a Server,
    pub(crate) caller: &'a Caller,
    pub(crate) given: JsonObject,
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) file_urls: Option<&'a FileUrls>,
    /// What the client answered to an earlier answer to this call.
    pub(crate) input: &'a GivenInput,
    /// The handle of the run that the call starts, if a record of the call names it. Such a run goes on when its caller
    /// disconnects, because the caller asks again.
    pub(crate) run_id: Option<RunId>,
    /// The decision that allowed the call, for the receipt of its run.
    pub(crate) decision: Option<Arc<DecisionRef>>,
    /// The lists of walls that the programs of the call must keep to.
    pub(crate) wall_lists: Vec<Vec<String>>,
}

impl<'a> ToolCall<'a> {
    fn files(&self) -> FileAccess<'a> {
        let Self { server, caller, file_urls, .. } = self;
        FileAccess { workspaces: server.workspaces(), caller, file_urls: *file_urls }
    }
}

/// The tool of that name.
pub(crate) fn find(name: &str) -> Option<&'static ToolEntry> {
    TOOLS.iter().copied().find(|entry| entry.name == name)
}

/// The message for a tool that does not exist, with the tools that do.
pub(crate) fn unknown(name: &str, is_shown: impl Fn(&str) -> bool) -> String {
    /// Number of characters of the name that the message repeats.
    const NAME_SHOWN_MAX: usize = 128;
    let shown: String = name.chars().take(NAME_SHOWN_MAX).collect();
    let known: Vec<&str> = TOOLS.iter().map(|entry| entry.name).filter(|name| is_shown(name)).collect();
    let runs =
        ["exec", "code", "python", "bash", "shell"].iter().any(|word| name.to_lowercase().contains(word));
    let same_words = |tool: &&str| words(tool) == words(name);
    let meant = known.iter().copied().find(same_words).or_else(|| nearest(name, known.iter().copied()));
    let meant = meant.or((runs && is_shown(run::NAME)).then_some(run::NAME));
    let asked = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    format!("there is no tool `{}`; {asked}the tools are {}", shown.escape_debug(), known.join(", "))
}

/// The words of a tool's name in one order, as other servers write them: `create_sandbox` and `mcp__palisade__run` mean
/// `sandbox_open` and `run`.
fn words(name: &str) -> Vec<&str> {
    let own = name.rsplit("__").next().unwrap_or(name);
    let mut words: Vec<&str> = own
        .split(['_', '-', '.', '/'])
        .map(|word| match word {
            "create" | "new" | "start" => "open",
            "delete" | "destroy" | "stop" | "kill" | "remove" => "close",
            "sandboxes" => "sandbox",
            "upload" => "write",
            "download" => "read",
            other => other,
        })
        .collect();
    words.sort_unstable();
    words
}

/// Replaces the name of a sandbox in `sandbox_id` by its id, also before `#` and a context. A text that is neither
/// stays, and the tool answers as for an unknown id. The name of a sandbox may itself contain `#`: the whole text
/// is looked up first.
pub(crate) async fn resolve_sandbox(
    server: &Server,
    caller: &Caller,
    entry: &ToolEntry,
    given: &mut JsonObject,
) -> Result<(), RunError> {
    if !entry.properties.contains(&SANDBOX_ID) {
        return Ok(());
    }
    let Some(Value::String(name)) = given.get_mut(SANDBOX_ID) else { return Ok(()) };
    let before_context = name.split_once(CONTEXT_SEPARATOR).map_or(name.as_str(), |(before, _)| before);
    if name.is_empty() || SandboxId::parse(before_context).is_some() {
        return Ok(());
    }
    // A caller without the right to list sandboxes has none.
    let sandboxes = server.runs.sandboxes().list(caller).await.unwrap_or_default();
    if let Some(id) = id_of_name(&sandboxes, name)? {
        id.as_str().clone_into(name);
    } else if let Some((before, context)) = name.rsplit_once(CONTEXT_SEPARATOR)
        && let Some(id) = id_of_name(&sandboxes, before)?
    {
        *name = format!("{id}{CONTEXT_SEPARATOR}{context}");
    }
    Ok(())
}

/// The id of the only sandbox with that name.
fn id_of_name<'a>(sandboxes: &'a [SandboxInfo], name: &str) -> Result<Option<&'a SandboxId>, RunError> {
    let mut named = sandboxes.iter().filter(|sandbox| !name.is_empty() && sandbox.name == name);
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => {
            let message = format!("several sandboxes are named `{}`", name.escape_debug());
            let remedy = "use the id of one instead of the name; sandbox_list shows them";
            Err(RunError::new("ambiguous_sandbox", message).remedy(remedy))
        }
        (one, _) => Ok(one.map(|one| &one.id)),
    }
}

/// How long the caller of a run waits for it.
pub(crate) fn patience_of(given: &JsonObject) -> Duration {
    following::patience(given.get("limits").and_then(|limits| limits.get("wait_ms")).and_then(Value::as_u64))
}

/// The scope that a call of that tool with these arguments needs; `None` for an unknown tool. A tool that works in a
/// persistent sandbox needs the scope of sandboxes, as policy judges it.
pub fn scope_needed(tool: &str, given: &JsonObject) -> Option<Scope> {
    let is_in_sandbox = given.contains_key(SANDBOX_ID);
    find(tool).map(|entry| if is_in_sandbox { Scope::Sandbox } else { entry.scope })
}

/// The same, with the scopes of access and of packages where the call asks for some.
pub fn scopes_needed(tool: &str, given: &JsonObject) -> Option<Scopes> {
    let is_empty = |asked: &Value| asked.is_null() || asked.as_array().is_some_and(Vec::is_empty);
    let asks = |name: &str| given.get(name).is_some_and(|asked| !is_empty(asked));
    let reaches = asks("access").then_some(Scope::Access);
    let installs = (tool == install::NAME || asks(install::PACKAGES)).then_some(Scope::Packages);
    scope_needed(tool, given).map(|scope| [scope].into_iter().chain(reaches).chain(installs).collect())
}

/// Names of the arguments of a tool; `None` for an unknown one.
pub fn arguments_of(tool: &str) -> Option<&'static [&'static str]> {
    find(tool).map(|entry| entry.properties)
}

/// Names of all tools, of their arguments and of the limits: the words that messages for models use.
pub fn vocabulary() -> Vec<String> {
    let names =
        TOOLS.iter().flat_map(|entry| [entry.name].into_iter().chain(entry.properties.iter().copied()));
    names.chain(run::LIMITS).map(str::to_owned).collect()
}

/// All tools that work on this machine, by name.
pub(crate) fn published(offer: &Offer<'_>) -> Vec<Tool> {
    let Offer { languages, packages, .. } = offer;
    let has_tools = offer.access.iter().any(|one| !one.tools.is_empty());
    let works = |entry: &&&ToolEntry| match entry.needs {
        Needs::Nothing => true,
        Needs::Language => !languages.is_empty(),
        Needs::Packages => !languages.is_empty() && !packages.is_empty(),
        Needs::ToolServers => has_tools && !languages.is_empty(),
    };
    TOOLS.iter().filter(works).map(|entry| entry.published(offer)).collect()
}

/// Adds the property `packages` where the server offers some.
fn add_packages(schema: &mut JsonObject, offer: &Offer<'_>, purpose: &str) {
    if offer.packages.is_empty() {
        return;
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let items = serde_json::json!({ "type": "string" });
        let property = serde_json::json!({ "type": "array", "items": items, "description": purpose });
        properties.insert(install::PACKAGES.to_owned(), property);
    }
}

/// Adds the property `access` where the server offers some.
fn add_access(schema: &mut JsonObject, offer: &Offer<'_>, purpose: &str) {
    /// Characters of what a name is for that the description repeats.
    const ABOUT_SHOWN_MAX: usize = 40;
    if offer.access.is_empty() {
        return;
    }
    let names: Vec<&str> = offer.access.iter().map(|one| one.name.as_str()).collect();
    let about = offer.access.iter().filter(|one| !one.about.is_empty()).map(|one| {
        let shown: String = one.about.chars().take(ABOUT_SHOWN_MAX).collect();
        format!("{}: {shown}", one.name)
    });
    let has_tools = offer.access.iter().any(|one| !one.tools.is_empty());
    let purpose =
        if has_tools { format!("{purpose}, or as tools.SERVER.TOOL()") } else { purpose.to_owned() };
    let description = std::iter::once(purpose).chain(about).collect::<Vec<_>>().join("; ");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let items = serde_json::json!({ "type": "string", "enum": names });
        let property = serde_json::json!({ "type": "array", "items": items, "description": description });
        properties.insert("access".to_owned(), property);
    }
}

/// Adds `limits.isolation` where the server has several walls.
fn add_isolation(schema: &mut JsonObject, offer: &Offer<'_>) {
    let [default, _, ..] = offer.walls else { return };
    let limits = schema.get_mut("properties").and_then(|properties| properties.get_mut("limits"));
    let Some(Value::Object(properties)) = limits.and_then(|limits| limits.get_mut("properties")) else {
        return;
    };
    let has_own = offer.walls.iter().any(|name| Kernel::of_wall(name) == Kernel::Own);
    let names: Vec<&str> = offer.walls.iter().copied().chain(has_own.then_some(OWN_KERNEL)).collect();
    let description =
        format!("The wall; default {default} or what policy demands; only a wall as strong or stronger");
    let property = serde_json::json!({ "type": "string", "enum": names, "description": description });
    properties.insert(ISOLATION.to_owned(), property);
}

impl ToolEntry {
    #[cfg(any(test, fuzzing))]
    pub(crate) fn properties(&self) -> &'static [&'static str] {
        self.properties
    }

    /// Whether a call changes something that it would change again if it were repeated, or that it cannot repeat.
    pub(crate) fn has_effects(&self) -> bool {
        !matches!(self.effects, Effects::ReadsOnly | Effects::Repeats)
    }

    /// Accepts arguments with known properties, and numbers within the bounds of the schema.
    fn arguments(&self, given: JsonObject) -> Result<Arguments, Refusal> {
        bounds::check(self, &given)?;
        Arguments::new("", self.properties, given)
    }

    fn published(&self, offer: &Offer<'_>) -> Tool {
        let Self { name, title, description, .. } = *self;
        Tool::new(name, description, (self.input)(offer))
            .with_title(title)
            .with_raw_output_schema((self.output)().into())
            .with_annotations(self.effects.annotations().open_world(self.reaches_out(offer)))
    }

    /// Whether a call may reach something outside of its sandbox.
    fn reaches_out(&self, offer: &Offer<'_>) -> bool {
        self.name == install::NAME || !offer.access.is_empty() && self.name == run::NAME
    }
}

impl Effects {
    fn annotations(&self) -> ToolAnnotations {
        let (is_read_only, is_destructive, is_idempotent) = match self {
            Self::ReadsOnly => (true, false, true),
            Self::Changes => (false, false, false),
            Self::Repeats => (false, false, true),
            Self::Destroys => (false, true, false),
            Self::DestroysOnce => (false, true, true),
        };
        ToolAnnotations::new().read_only(is_read_only).destructive(is_destructive).idempotent(is_idempotent)
    }
}

/// The result of a call whose `arguments` are not an object.
pub(crate) fn refuse_arguments(entry: &ToolEntry, complaint: IllTypedArguments) -> CallToolResult {
    let message = format!("`arguments` must be an object, not {}", complaint.0);
    let remedy = match entry.properties {
        [] => "send `arguments` as the JSON object {}".to_owned(),
        known => format!("send `arguments` as a JSON object with properties of {}", known.join(", ")),
    };
    refused(&refusal(message, remedy))
}

/// Parses the limits that tools accept.
fn limits_of(limits: &mut Arguments, timeout_ms: Option<u64>) -> Result<Ask, Refusal> {
    Ok(Ask {
        timeout_ms,
        memory_mb: limits.whole("memory_mb")?,
        cpus: limits.number("cpus")?,
        processes: limits.whole("processes")?,
        disk_mb: limits.whole("disk_mb")?,
        open_files: limits.whole("open_files")?,
        output_kb: limits.whole("output_kb")?,
    })
}

/// A tool's result as text and structured content.
fn answer(structured: &impl Serialize, text: String, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    // Serializing the server's own value does not fail.
    result.structured_content = serde_json::to_value(structured).ok();
    result.is_error = Some(is_error);
    result
}

#[derive(Serialize)]
struct RefusedView<'a> {
    outcome: &'static str,
    error: &'a RunError,
}

/// The result of a refused call.
pub(crate) fn refused(error: &RunError) -> CallToolResult {
    // A rule or a quota that allows the call later has still refused it.
    let is_by_rule = error.rule.is_some();
    let is_refused = is_by_rule || [QUOTA_EXCEEDED, IDEMPOTENCY_CONFLICT].contains(&error.code.as_str());
    // A store that a newer server has changed is not the caller's fault either.
    let is_fault = error.code == IDEMPOTENCY_INTERRUPTED || error.code.starts_with("store_");
    let is_unavailable = !is_refused && (error.retryable || is_fault);
    let outcome = if is_unavailable { Outcome::Unavailable } else { Outcome::Refused }.name();
    let told = if is_by_rule { text::of_denial(error) } else { text::of_error(error) };
    let text = format!("outcome: {outcome}\n{told}");
    answer(&RefusedView { outcome, error }, text, true)
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
