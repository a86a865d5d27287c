//! `run`: executes one program in a fresh sandbox, or in a persistent sandbox that the caller names.

use std::time::Duration;

use engine::packages::wanted;
use engine::{Caller, FinishedRun, Given, InputFile, LiveRun, RunError, RunRequest, Stdin};
use policy::Policy;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject};
use rmcp::service::RequestContext;
use sandbox::{Outcome, WORKSPACE};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::files::decoded;
use super::following::{Followed, Follower, OnDisconnect, patience};
use super::install::PACKAGES;
use super::{Effects, ISOLATION, Needs, Offer, Scope, ToolCall, ToolEntry, limits_of, report};
use crate::Server;
use crate::arguments::{Arguments, Refusal, refusal};
use crate::doors::Door;
use crate::{file_urls, languages, program, schema, tasks};

/// Name of the tool.
pub(crate) const NAME: &str = "run";
/// Properties of one of its `inputs`.
const INPUT: [&str; 4] = ["path", "text", "base64", "unpack"];
/// Properties of its `limits`.
pub(crate) const LIMITS: [&str; 8] =
    ["memory_mb", "cpus", "processes", "disk_mb", "open_files", "output_kb", "wait_ms", ISOLATION];
const RETRY_MS: u64 = 1000;

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: NAME,
    title: "Run a program",
    description: "Run a program in an isolated, offline, resource-limited sandbox and return its stdout, \
stderr, exit status, the value of its last expression and the figures it shows. Without sandbox_id every run starts \
fresh and leaves nothing behind.",
    effects: Effects::Changes,
    scope: Scope::Run,
    needs: Needs::Language,
    properties: &[
        "language",
        "code",
        "args",
        "stdin",
        "variables",
        "inputs",
        "sandbox_id",
        "timeout_ms",
        "limits",
        "packages",
        "access",
    ],
    input,
    output: schema::run_output,
    call: |call| Box::pin(async move { answer(call).await }),
};

/// Runs the program of the arguments. A run that takes longer than its caller waits continues without this
/// request.
async fn answer(call: ToolCall<'_>) -> CallToolResponse {
    let ToolCall { server, caller, given, context, run_id, decision, wall_lists, .. } = call;
    let RunArguments { mut request, wait } = match asked(given) {
        Ok(asked) => asked,
        Err(error) => return report::unstarted(server, Outcome::Refused, *error).into(),
    };
    request.decision = decision;
    request.wall_lists = wall_lists;
    let Some(room) = server.hold(weight(&request)) else {
        return report::unstarted(server, Outcome::Unavailable, no_room()).into();
    };
    let on_disconnect = if run_id.is_some() { OnDisconnect::Detach } else { OnDisconnect::Stop };
    let started = match run_id {
        Some(id) => server.runs.start_as(id, caller, request),
        None => server.runs.start(caller, request),
    };
    let mut started = match started {
        Ok(started) => started,
        Err(error) => return report::unstarted(server, Outcome::Unavailable, error).into(),
    };
    tracing::debug!(run_id = started.id().as_str(), "run_began");
    // A caller that cannot ask about the run later gets its result here.
    let can_follow = Door::Log.is_seen(server.engine.gatekeeper(), caller);
    let mut follower = Follower::new(server, context, started.live()).asking(can_follow, None);
    let wait = if can_follow { wait } else { Duration::MAX };
    let run = match follower.follow_asking(wait, on_disconnect).await {
        Followed::Finished(run) => run,
        continued => match started.hand_over().await {
            Ok(()) => {
                watch_on(started.live(), room);
                follower.end().await;
                return continues(server, caller, (&started.live(), continued), context).await;
            }
            // A run that is not in the store cannot be found again, so this request stays with it.
            Err(error) => {
                tracing::warn!(reason = %error, "not_handed_over");
                follower.follow(Duration::MAX, OnDisconnect::Stop).await.unwrap_or(started.finished().await)
            }
        },
    };
    follower.end().await;
    log_end(&run);
    report::finished(server, caller, &run, file_urls(context).as_ref()).await.into()
}

/// The answer for a run that goes on: a question, a task for a client that supports tasks, otherwise a text and the run
/// id.
async fn continues(
    server: &Server,
    caller: &Caller,
    (run, continued): (&LiveRun, Followed),
    context: &RequestContext<RoleServer>,
) -> CallToolResponse {
    if let Followed::Asks(question) = continued
        && let Some(input) = question.input_required(server, caller, run.id()).await
    {
        return input.into();
    }
    if context.client_capabilities().is_some_and(|known| known.supports_tasks()) {
        return tasks::created(run).into();
    }
    report::running(server, caller, run).await.into()
}

/// Waits for the end of a run that no caller may ask about again, and logs it.
fn watch_on(run: LiveRun, room: OwnedSemaphorePermit) {
    tokio::spawn(async move {
        let ended = run.finished().await;
        log_end(&ended);
        drop(room);
    });
}

pub(super) fn log_end(run: &FinishedRun) {
    let result = &run.result;
    tracing::info!(
        run_id = run.id.as_str(),
        principal = %run.principal,
        language = engine::runtimes::known_language(&run.language),
        outcome = result.outcome.name(),
        error = result.error.as_ref().map(|error| &*error.code),
        wall_ms = result.execution().usage.wall_ms.round(),
        queued_ms = result.execution().usage.queued_ms.round(),
        "run_ended"
    );
}

pub(super) fn no_room() -> RunError {
    let message = "the requests that are waiting already hold as much memory as this server gives them";
    let mut error = RunError::new("busy", message).remedy("wait for earlier runs, or send less with each");
    error.retryable = true;
    error.retry_after_ms = Some(RETRY_MS);
    error
}

/// Memory that a request holds while it is queued and running.
pub(super) fn weight(request: &RunRequest) -> usize {
    let stdin = if let Stdin::Bytes(bytes) = &request.stdin { bytes.len() } else { 0 };
    let inputs: usize = request.inputs.iter().map(|input| input.content.len()).sum();
    let variables = serde_json::to_string(&request.variables).map_or(0, |text| text.len());
    let args: usize = request.args.iter().map(String::len).sum();
    request.code.len() + stdin + inputs + args + variables
}

/// The parsed arguments.
#[derive(Debug)]
pub(super) struct RunArguments {
    pub(super) request: RunRequest,
    wait: Duration,
}

pub(super) fn asked(given: JsonObject) -> Result<RunArguments, Refusal> {
    let mut arguments = TOOL.arguments(given)?;
    let inputs = arguments.objects("inputs", &INPUT)?;
    let mut limits = arguments.object("limits", &LIMITS)?;
    let wait = patience(limits.whole("wait_ms")?);
    let language = languages::take(&mut arguments)?;
    let code = program::as_meant(&language, arguments.required_text("code")?);
    if code.trim().is_empty() {
        return Err(Box::new(RunError::new("bad_code", "`code` is empty").remedy("give the whole program")));
    }
    let packages = wanted(&arguments.texts(PACKAGES)?, &language)?;
    let request = RunRequest {
        language,
        code,
        source_name: None,
        args: arguments.texts("args")?,
        stdin: arguments.text("stdin")?.map_or(Stdin::Empty, |text| Stdin::Bytes(text.into_bytes())),
        variables: arguments.open_object("variables")?,
        given: Given::default(),
        inputs: inputs.into_iter().map(input_file).collect::<Result<_, _>>()?,
        sandbox: arguments.sandbox()?,
        wall: limits.text(ISOLATION)?,
        wall_lists: Vec::new(),
        ask: limits_of(&mut limits, arguments.whole("timeout_ms")?)?,
        collect_files: false,
        compile_anew: false,
        cold: false,
        access: arguments.texts("access")?,
        packages,
        install_progress: None,
        run_id: None,
        grants: Vec::new(),
        terminal: None,
        decision: None,
    };
    Ok(RunArguments { request, wait })
}

fn input_file(mut given: Arguments) -> Result<InputFile, Refusal> {
    let path = relative(given.required_text("path")?);
    let content = match (given.text("text")?, given.text("base64")?) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => decoded(&format!("{}.base64", given.place()), &text)?,
        (None, None) | (Some(_), Some(_)) => {
            let message = format!("`{}` needs either `text` or `base64`", given.place());
            return Err(refusal(message, "give exactly one of the two"));
        }
    };
    let unpack = given.truth("unpack")?.unwrap_or(false);
    Ok(InputFile { path, content, unpack })
}

/// A path in the workspace, which programs see as `/workspace`. The engine refuses what leads elsewhere.
fn relative(path: String) -> String {
    match path.strip_prefix(WORKSPACE).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) => rest.trim_start_matches('/').to_owned(),
        None => path.strip_prefix("./").map(str::to_owned).unwrap_or(path),
    }
}

/// Schema of the arguments of `run`, with the languages that work on this machine and the limits in force.
fn input(offer: &Offer<'_>) -> JsonObject {
    let mut schema = base_input(offer);
    super::add_packages(&mut schema, offer, "To import: pandas>=2, npm:zod");
    super::add_access(&mut schema, offer, "Reach these from the program, through its HTTP proxy variables");
    super::add_isolation(&mut schema, offer);
    schema
}

fn base_input(offer: &Offer<'_>) -> JsonObject {
    let Policy { defaults, maxima, .. } = offer.policy;
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
    schema::object(json!({
        "type": "object",
        "properties": {
            "language": { "type": "string", "enum": offer.languages },
            "code": { "type": "string", "description": "The whole program" },
            "args": { "type": "array", "items": { "type": "string" }, "description": "Its arguments" },
            "stdin": { "type": "string", "description": "Its standard input; absent: empty" },
            "variables": {
                "type": "object",
                "description": "Name to any JSON value, bound as native values; $NAME sets the environment variable NAME",
                "additionalProperties": true
            },
            "inputs": {
                "type": "array",
                "description": "Placed in the working directory first",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "description": "Relative, e.g. data/in.csv" },
                        "text": { "type": "string", "description": "Content; or give base64" },
                        "base64": { "type": "string", "description": "Content that is not text" },
                        "unpack": { "type": "boolean", "description": "Archive: .zip, .tar, .tar.gz ..." }
                    },
                    "required": ["path"],
                    "additionalProperties": false
                }
            },
            "sandbox_id": { "type": "string", "description": "Run there; ID#NAME: in a further interpreter there" },
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parse(given: Value) -> Result<RunRequest, Refusal> {
        let Value::Object(given) = given else { panic!("an object") };
        asked(given).map(|asked| asked.request)
    }

    #[test]
    fn nested_properties_are_those_of_the_schema() {
        let policy = Policy::built_in(1);
        let walls = ["native", "gvisor"];
        let schema = Value::Object(input(&Offer { walls: &walls, ..Offer::bare(&[], &policy) }));
        let names = |place: &str| {
            schema
                .pointer(place)
                .and_then(Value::as_object)
                .map(|object| object.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(names("/properties/limits/properties").unwrap(), LIMITS);
        assert_eq!(names("/properties/inputs/items/properties").unwrap(), INPUT);
    }

    #[test]
    fn everything_is_taken_over() {
        let run = parse(json!({
            "language": "python", "code": "1", "args": ["a"], "stdin": "in", "variables": {"x": [1, null]},
            "inputs": [{"path": "t", "text": "é"}, {"path": "b.zip", "base64": "AP8=", "unpack": true}],
            "timeout_ms": 5000, "limits": {"memory_mb": 64, "cpus": 0.5}
        }))
        .unwrap();
        assert_eq!((run.language.as_str(), run.args.as_slice()), ("python", &["a".to_owned()][..]));
        assert_eq!(run.inputs[1].content, [0, 255]);
        assert!(run.inputs[1].unpack && !run.inputs[0].unpack);
        assert_eq!((run.ask.timeout_ms, run.ask.memory_mb, run.ask.cpus), (Some(5000), Some(64), Some(0.5)));
        assert!(matches!(run.stdin, Stdin::Bytes(bytes) if bytes == b"in"));
        assert_eq!(run.variables["x"], json!([1, null]));
    }

    #[test]
    fn what_models_write_instead_is_understood() {
        let run = parse(json!({
            "language": "Node", "code": "1", "timeout_ms": "5000", "limits": {"cpus": "0.5"},
            "inputs": [{"path": "/workspace/data/in.csv", "text": ""}, {"path": "/etc/passwd", "text": ""}]
        }))
        .unwrap();
        assert_eq!(
            (run.language.as_str(), run.ask.timeout_ms, run.ask.cpus),
            ("javascript", Some(5000), Some(0.5))
        );
        assert_eq!(
            (run.inputs[0].path.as_str(), run.inputs[1].path.as_str()),
            ("data/in.csv", "/etc/passwd")
        );
    }

    #[test]
    fn a_missing_or_unknown_language_is_answered_with_the_languages() {
        let missing = parse(json!({"code": "1"})).unwrap_err();
        assert!(missing.remedy.unwrap().contains("python"));
        let unknown = parse(json!({"language": "pyhton", "code": "1"})).unwrap_err();
        assert_eq!(unknown.code, "language_unknown");
        assert!(unknown.remedy.unwrap().starts_with("did you mean python?"));
    }

    #[test]
    fn what_the_schema_does_not_say_is_refused() {
        for bad in [
            json!({"code": "1"}),
            json!({"language": "python"}),
            json!({"language": "python", "code": 1}),
            json!({"language": "python", "code": "1", "timeout": 5}),
            json!({"language": "python", "code": "1", "timeout_ms": "5s"}),
            json!({"language": "python", "code": "1", "limits": {"memory": 5}}),
            json!({"language": "python", "code": "1", "limits": 5}),
            json!({"language": "python", "code": "1", "args": "a"}),
            json!({"language": "python", "code": null}),
            json!({"language": "python", "code": "1", "stdin": 7}),
            json!({"language": "python", "code": "1", "variables": []}),
            json!({"language": "python", "code": "1", "inputs": [{"path": "a"}]}),
            json!({"language": "python", "code": "1", "inputs": [{"path": "a", "text": "", "base64": ""}]}),
            json!({"language": "python", "code": "1", "inputs": [{"path": "a", "base64": "!"}]}),
            json!({"language": "python", "code": "1", "inputs": [{"text": "a"}]}),
        ] {
            assert_eq!(
                parse(bad.clone()).err().map(|error| error.code),
                Some("bad_arguments".to_owned()),
                "{bad}"
            );
        }
    }
}
