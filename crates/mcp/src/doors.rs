//! Doors: ways beside `tools/call` to reach or to see what a tool does.
//!
//! [`DOORS`] says which tool each door stands for. A request that comes through a door is judged, counted and recorded
//! as a call of that tool with the same arguments, so a policy says everything once. A door of a hidden tool answers as
//! if nothing were behind it. This module also brings arguments into the one form that rules see.

use engine::audit::Event;
use engine::workspace::FilePath;
use engine::{Admitted, CONTEXT_SEPARATOR, Caller, Gatekeeper, JudgedCall, RunError};
use rmcp::model::{ErrorData, JsonObject, Tool};
use serde_json::{Value, json};

use crate::file_urls::FileAction;
use crate::tools::{SANDBOX_ID, TOOLS, ToolEntry};
use crate::{languages, text};

/// The argument that names a language, in every tool that has one.
const LANGUAGE: &str = "language";
/// The argument that names a file or a directory, in every tool that has one.
const PATH: &str = "path";
/// The argument with the limits of a run or sandbox.
const LIMITS: &str = "limits";
/// The name under which rules see the context of a sandbox, which callers write as `ID#NAME`.
const CONTEXT: &str = "context";

/// A way to what a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// `palisade://capabilities`.
    Capabilities,
    /// `palisade://runs/{id}/log`.
    Log,
    /// `palisade://runs/{id}/receipt`.
    Receipt,
    /// `palisade://runs/{id}/displays/{number}`.
    Display,
    /// `palisade://sandboxes/{id}/files/{path}`.
    File,
    /// A subscription to the log of a run.
    Subscription,
    /// `tasks/get`.
    TaskGet,
    /// `tasks/update`.
    TaskUpdate,
    /// `tasks/cancel`.
    TaskCancel,
    /// Completion of the ids of runs.
    RunCompletion,
    /// Completion of languages.
    LanguageCompletion,
    /// The route `/attach` of the control socket.
    Attach,
    /// A URL from which a file can be fetched.
    Download,
    /// A URL to which a file can be sent.
    Upload,
    /// `palisade://tools/{server}`.
    Tools,
}

/// Which tool each door stands for.
pub(crate) const DOORS: [(Door, &str); 15] = [
    (Door::Capabilities, "get_capabilities"),
    (Door::Log, "wait"),
    (Door::Receipt, "wait"),
    (Door::Display, "wait"),
    (Door::File, "read_file"),
    (Door::Subscription, "wait"),
    (Door::TaskGet, "wait"),
    (Door::TaskUpdate, "wait"),
    (Door::TaskCancel, "wait"),
    (Door::RunCompletion, "wait"),
    (Door::LanguageCompletion, "run"),
    (Door::Attach, "run"),
    (Door::Download, "read_file"),
    (Door::Upload, "write_file"),
    (Door::Tools, "find_tools"),
];

/// Why a door does not open.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The tool is hidden: the answer is that of something that does not exist.
    Hidden,
    /// The policy denies the call.
    Denied(Box<RunError>),
}

impl Door {
    /// The tool that it stands for.
    pub(crate) fn tool(self) -> &'static str {
        DOORS.iter().find(|(door, _)| *door == self).map_or("", |(_, tool)| tool)
    }

    /// Whether the caller sees the door.
    pub(crate) fn is_seen(self, gatekeeper: &Gatekeeper, caller: &Caller) -> bool {
        !gatekeeper.hides(caller, &[self.tool()])
    }

    /// Judges a request as a call of the tool with these arguments.
    pub(crate) async fn open(
        self,
        gatekeeper: &Gatekeeper,
        caller: &Caller,
        arguments: Value,
    ) -> Result<Admitted, Closed> {
        let names = [self.tool()];
        let is_hidden = gatekeeper.conceals(caller, &names);
        let call = JudgedCall { caller, names: &names, arguments: &arguments };
        gatekeeper.admit(call).await.map_err(|error| match is_hidden {
            true => Closed::Hidden,
            false => Closed::Denied(Box::new(error)),
        })
    }

    /// Whether another call may give the caller a URL for this file.
    pub(crate) fn may_give(self, gatekeeper: &Gatekeeper, caller: &Caller, arguments: &Value) -> bool {
        gatekeeper.allows_uncounted(JudgedCall { caller, names: &[self.tool()], arguments })
    }
}

impl Closed {
    /// The answer as a protocol error; `nothing` is the answer when nothing is there.
    pub(crate) fn into_error(self, nothing: ErrorData) -> ErrorData {
        match self {
            Self::Hidden => nothing,
            Self::Denied(error) => {
                ErrorData::invalid_request(text::of_denial(&error), Some(json!({ "error": error })))
            }
        }
    }
}

/// Brings arguments into the form that is carried out: optional ones that are null are left out, as the tools do, the
/// language has its own name, and a path has no superfluous parts.
pub(crate) fn canonical(given: &mut JsonObject) {
    given.retain(|_, value| !value.is_null());
    if let Some(Value::Object(limits)) = given.get_mut(LIMITS) {
        limits.retain(|_, value| !value.is_null());
    }
    if let Some(Value::String(name)) = given.get_mut(LANGUAGE)
        && let Ok(language) = languages::canonical(name)
    {
        language.clone_into(name);
    }
    if let Some(Value::String(path)) = given.get_mut(PATH)
        && let Ok(Some(plain)) = FilePath::of_directory(path)
    {
        // The tools tell a folder from a file by it.
        let end = if path.ends_with('/') { "/" } else { "" };
        *path = format!("{}{end}", plain.as_str());
    }
}

/// The arguments as rules see them: the context of a sandbox is apart from its id, so that a rule about a sandbox holds
/// in all of its contexts, and a path has no `/` at its end. `None` if they are the same.
pub(crate) fn as_judged(arguments: &Value) -> Option<Value> {
    let sandbox = arguments.get(SANDBOX_ID).and_then(Value::as_str);
    let context = sandbox.and_then(|id| id.split_once(CONTEXT_SEPARATOR));
    let path = arguments.get(PATH).and_then(Value::as_str);
    let folder = path.and_then(|path| path.strip_suffix('/')).filter(|path| !path.is_empty());
    if context.is_none() && folder.is_none() {
        return None;
    }
    let mut judged = arguments.clone();
    if let Some((id, context)) = context {
        judged[SANDBOX_ID] = json!(id);
        judged[CONTEXT] = json!(context);
    }
    if let Some(folder) = folder {
        judged[PATH] = json!(folder);
    }
    Some(judged)
}

/// The arguments of a call as rules see them, but for the names of sandboxes, which only a server can resolve.
pub fn judged_arguments(mut given: JsonObject) -> Value {
    canonical(&mut given);
    let arguments = Value::Object(given);
    as_judged(&arguments).unwrap_or(arguments)
}

/// Whether a URL that the caller was given may still be used. Its use is recorded.
pub fn may_use_url(
    gatekeeper: &Gatekeeper,
    caller: &Caller,
    action: FileAction,
    (sandbox_id, path): (&str, &FilePath),
) -> bool {
    let door = match action {
        FileAction::Download => Door::Download,
        FileAction::Upload => Door::Upload,
    };
    let arguments = json!({ "sandbox_id": sandbox_id, "path": path.as_str() });
    if gatekeeper.forbids(JudgedCall { caller, names: &[door.tool()], arguments: &arguments }) {
        return false;
    }
    let audit = gatekeeper.audit();
    let event = Event::new("file_url_used")
        .by(caller)
        .with("tool", door.tool())
        .with("sandbox_id", sandbox_id)
        .with("digest", audit.digest_of(&arguments));
    audit.note_before(event).is_ok()
}

/// Names of the tools that the caller must not see.
pub(crate) fn hidden(gatekeeper: &Gatekeeper, caller: &Caller) -> Vec<&'static str> {
    let names = TOOLS.iter().map(|entry: &&ToolEntry| entry.name);
    names.filter(|name| gatekeeper.hides(caller, &[name])).collect()
}

/// Leaves out clauses that name a hidden tool. `run` and `wait` are words of the language too, so texts keep them.
pub(crate) fn without_mentions(text: &str, hidden: &[&str]) -> String {
    let names = |clause: &str| hidden.iter().any(|name| name.contains('_') && clause.contains(name));
    let clauses: Vec<&str> = text.split("; ").filter(|clause| !names(clause)).collect();
    clauses.join("; ")
}

/// Leaves out of a published tool what its texts say about hidden ones.
pub(crate) fn conceal(tool: &mut Tool, hidden: &[&str]) {
    fn walk(value: &mut Value, hidden: &[&str]) {
        match value {
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| match value {
                Value::String(text) if key == "description" => *text = without_mentions(text, hidden),
                other => walk(other, hidden),
            }),
            Value::Array(list) => list.iter_mut().for_each(|value| walk(value, hidden)),
            _ => {}
        }
    }
    if hidden.is_empty() {
        return;
    }
    tool.description = tool.description.take().map(|text| without_mentions(&text, hidden).into());
    let mut schema = Value::Object((*tool.input_schema).clone());
    walk(&mut schema, hidden);
    if let Value::Object(schema) = schema {
        tool.input_schema = schema.into();
    }
}

#[cfg(test)]
mod tests {
    use engine::packages::Ecosystem;
    use policy::{Binding, Book, Syntax};

    use super::*;
    use crate::tools;

    fn gatekeeper(folder: &harness::TestFolder, rules: Value) -> Gatekeeper {
        let files = [("p".to_owned(), rules.to_string(), Syntax::Json)];
        let binding = Binding { callers: "*".to_owned(), policy: "p".to_owned() };
        Gatekeeper::new(folder.path(), Book::new(&files, vec![binding]).unwrap())
    }

    #[tokio::test]
    async fn every_door_is_judged_as_a_tool_that_exists_and_closes_with_it() {
        let folder = harness::TestFolder::new();
        let caller = Caller::local();
        for (door, tool) in DOORS {
            assert_eq!(door.tool(), tool);
            assert!(tools::find(tool).is_some(), "{door:?}");
            let hiding = gatekeeper(&folder, json!({"version": "1", "default": "allow", "hide": [tool]}));
            assert!(!door.is_seen(&hiding, &caller), "{door:?}");
            assert!(matches!(door.open(&hiding, &caller, json!({})).await, Err(Closed::Hidden)), "{door:?}");
            assert!(!door.may_give(&hiding, &caller, &json!({})), "{door:?}");
            let path = FilePath::parse("file").unwrap();
            for (action, judged) in
                [(FileAction::Download, Door::Download), (FileAction::Upload, Door::Upload)]
            {
                let is_allowed = may_use_url(&hiding, &caller, action, ("sbx_1", &path));
                assert_eq!(is_allowed, judged.tool() != tool, "{action:?}");
            }
            let tools = json!({tool: {"deny_if": {"args.x": {"eq": 1}}}});
            let denying = gatekeeper(&folder, json!({"version": "1", "default": "allow", "tools": tools}));
            let denied = door.open(&denying, &caller, json!({"x": 1})).await.unwrap_err();
            let error = denied.into_error(ErrorData::internal_error("not this", None));
            assert!(error.message.starts_with("[POLICY DENIED]"), "{door:?}: {}", error.message);
            assert!(door.open(&denying, &caller, json!({})).await.is_ok(), "{door:?}");
            let others =
                gatekeeper(&folder, json!({"version": "1", "default": "deny", "tools": {"other": {}}}));
            assert!(
                matches!(door.open(&others, &caller, json!({})).await, Err(Closed::Denied(_))),
                "{door:?}"
            );
        }
    }

    #[test]
    fn arguments_have_one_form() {
        let mut given = json!({"language": " SH ", "path": "/workspace//a/./b", "stdin": null,
            "limits": {"memory_mb": null, "cpus": 1}, "variables": {"x": null}});
        let Value::Object(map) = &mut given else { panic!() };
        canonical(map);
        let expected =
            json!({"language": "bash", "path": "a/b", "limits": {"cpus": 1}, "variables": {"x": null}});
        assert_eq!(given, expected);
        let judged = as_judged(&json!({"sandbox_id": "sbx_1#tools", "code": "1"})).unwrap();
        assert_eq!(judged, json!({"sandbox_id": "sbx_1", "code": "1", "context": "tools"}));
        assert!(as_judged(&json!({"sandbox_id": "sbx_1"})).is_none() && as_judged(&json!({})).is_none());
    }

    #[test]
    fn published_tools_do_not_mention_hidden_ones() {
        let languages = ["python".to_owned()];
        let names: Vec<&str> =
            TOOLS.iter().map(|entry| entry.name).filter(|name| name.contains('_')).collect();
        for hidden in names {
            let policy = policy::Policy::built_in(2);
            let published = tools::published(&tools::Offer {
                packages: &Ecosystem::ALL,
                ..tools::Offer::bare(&languages, &policy)
            });
            for mut tool in published.into_iter().filter(|tool| tool.name != hidden) {
                conceal(&mut tool, &[hidden]);
                let shown = format!("{:?} {}", tool.description, json!(tool.input_schema));
                assert!(!shown.contains(hidden), "{hidden} in {}: {shown}", tool.name);
            }
        }
    }
}
