//! `run`: one program in a fresh sandbox.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{InputFile, RunError, RunRequest, RunResult, Stdin, Stop};
use policy::{Ask, Policy};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use sandbox::{Enforced, Enforcement, Guarantee, Outcome};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::answer;
use crate::log::{self, LogLevel};
use crate::mcp::Server;
use crate::mcp::arguments::{Arguments, Refusal, refusal};
use crate::mcp::progress::Progress;
use crate::mcp::{schema, text};
use crate::render;

/// Its name.
pub(crate) const NAME: &str = "run";
/// Of each stream this much is in the answer.
pub(crate) const INLINE_BYTES_MAX: usize = 20_000;
/// News of a run that may wait; they are taken at once.
const EVENTS_MAX: usize = 16;
const RUN_ID_BYTES: usize = 16;
const RETRY_MS: u64 = 1000;

const DESCRIPTION: &str = "Run a program in an isolated, offline, resource-limited sandbox and return its stdout, \
stderr, exit status and the value of its last expression. Every run starts fresh and leaves nothing behind.";

/// What clients see.
pub(crate) fn tool(languages: &[String], policy: &Policy) -> Tool {
    let annotations =
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(false);
    Tool::new(NAME, DESCRIPTION, schema::run_input(languages, policy))
        .with_title("Run a program")
        .with_raw_output_schema(schema::run_output().into())
        .with_annotations(annotations)
}

/// Runs what the arguments say.
pub(crate) async fn call(
    server: &Server,
    given: JsonObject,
    context: RequestContext<RoleServer>,
) -> CallToolResult {
    let Some(run_id) = run_id() else {
        return finished(unstarted(server, Outcome::Unavailable, no_randomness()), "");
    };
    let request = match request(given) {
        Ok(request) => request,
        Err(error) => return finished(unstarted(server, Outcome::Refused, *error), &run_id),
    };
    let Some(_room) = server.hold(weight(&request)) else {
        return finished(unstarted(server, Outcome::Unavailable, no_room()), &run_id);
    };
    let language: String = request.language.chars().take(32).collect();
    log::line(LogLevel::Debug, "run_began", &[("run_id", json!(run_id)), ("language", json!(language))]);
    let result = follow(server, request, context).await;
    let fields = [
        ("run_id", json!(run_id)),
        ("language", json!(language)),
        ("outcome", json!(result.outcome.name())),
        ("error", json!(result.error.as_ref().map(|error| &error.code))),
        ("wall_ms", json!(result.usage.wall_ms.round())),
        ("queued_ms", json!(result.usage.queued_ms.round())),
    ];
    log::line(LogLevel::Info, "run_ended", &fields);
    finished(result, &run_id)
}

/// Carries news and stops between the run and the client.
async fn follow(server: &Server, request: RunRequest, context: RequestContext<RoleServer>) -> RunResult {
    let token = context.meta.get_progress_token();
    let mut progress = token.map(|token| Progress::new(context.peer.clone(), token));
    let (events, mut news) = mpsc::channel(EVENTS_MAX);
    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    let running = server.engine.run(request, progress.is_some().then_some(events), stopped);
    tokio::pin!(running);
    let result = loop {
        tokio::select! {
            biased;
            why = server.ended(), if stop.is_some() => send(&mut stop, why),
            () = context.ct.cancelled(), if stop.is_some() => send(&mut stop, Stop::Cancelled),
            Some(event) = news.recv() => if let Some(progress) = &mut progress { progress.take(&event) },
            result = &mut running => break result,
            () = due(&mut progress) => if let Some(progress) = &mut progress { progress.tell() },
        }
    };
    if let Some(progress) = &mut progress {
        progress.finish().await;
    }
    result
}

fn send(stop: &mut Option<oneshot::Sender<Stop>>, why: Stop) {
    if let Some(stop) = stop.take() {
        // A run that ended meanwhile needs no stopping.
        stop.send(why).ok();
    }
}

async fn due(progress: &mut Option<Progress>) {
    match progress {
        Some(progress) => progress.due().await,
        None => std::future::pending().await,
    }
}

fn finished(result: RunResult, run_id: &str) -> CallToolResult {
    let mut structured = render::structured(&result, INLINE_BYTES_MAX);
    if let Value::Object(fields) = &mut structured {
        fields.insert("isolation".to_owned(), isolation(&result));
        fields.insert("run_id".to_owned(), json!(run_id));
        if result.enforced == Enforced::default() {
            // No sandbox was made, so there is nothing to say about one.
            fields.retain(|name, _| !["isolation", "usage", "stdout", "stderr"].contains(&name.as_str()));
        }
    }
    answer(structured, text::of_run(&result, INLINE_BYTES_MAX), result.outcome.is_error())
}

/// The wall with only what is out of the ordinary: `get_capabilities` has the whole list.
fn isolation(result: &RunResult) -> Value {
    let mut notes = Map::new();
    let mut absent = Map::new();
    for guarantee in Guarantee::ALL {
        match result.enforced.get(guarantee) {
            Enforcement::By { note: Some(note), .. } => {
                drop(notes.insert(guarantee.name().to_owned(), json!(note)))
            }
            Enforcement::By { note: None, .. } => {}
            Enforcement::Absent { reason } => drop(absent.insert(guarantee.name().to_owned(), json!(reason))),
        }
    }
    let mut fields = Map::from_iter([("backend".to_owned(), json!(result.backend))]);
    for (name, list) in [("notes", notes), ("absent", absent)] {
        if !list.is_empty() {
            fields.insert(name.to_owned(), Value::Object(list));
        }
    }
    Value::Object(fields)
}

fn unstarted(server: &Server, outcome: Outcome, error: RunError) -> RunResult {
    RunResult::unstarted(outcome, server.engine.backend().name(), error)
}

fn no_room() -> RunError {
    let message = "the requests that are waiting already hold as much memory as this server gives them";
    let mut error = RunError::new("busy", message).remedy("wait for earlier runs, or send less with each");
    error.retryable = true;
    error.retry_after_ms = Some(RETRY_MS);
    error
}

fn no_randomness() -> RunError {
    RunError::new("no_randomness", "the machine gives no random numbers").remedy("ask the operator")
}

/// What a request keeps in memory while it waits and runs.
fn weight(request: &RunRequest) -> usize {
    let stdin = if let Stdin::Bytes(bytes) = &request.stdin { bytes.len() } else { 0 };
    let inputs: usize = request.inputs.iter().map(|input| input.content.len()).sum();
    request.code.len() + stdin + inputs + request.args.iter().map(String::len).sum::<usize>()
}

/// Unguessable: a later request may name the run by it.
fn run_id() -> Option<String> {
    let mut bytes = [0_u8; RUN_ID_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    let mut id = "run_".to_owned();
    for byte in bytes {
        write!(id, "{byte:02x}").ok()?;
    }
    (filled == RUN_ID_BYTES).then_some(id)
}

fn request(given: JsonObject) -> Result<RunRequest, Refusal> {
    let mut arguments = Arguments::new("", &schema::RUN, given)?;
    let inputs = arguments.objects("inputs", &schema::INPUT)?;
    let mut limits = arguments.object("limits", &schema::LIMITS)?;
    Ok(RunRequest {
        language: arguments.required_text("language")?,
        code: arguments.required_text("code")?,
        args: arguments.texts("args")?,
        stdin: arguments.text("stdin")?.map_or(Stdin::Empty, |text| Stdin::Bytes(text.into_bytes())),
        variables: arguments.open_object("variables")?,
        inputs: inputs.into_iter().map(input).collect::<Result<_, _>>()?,
        ask: Ask {
            timeout_ms: arguments.whole("timeout_ms")?,
            memory_mb: limits.whole("memory_mb")?,
            cpus: limits.number("cpus")?,
            processes: limits.whole("processes")?,
            disk_mb: limits.whole("disk_mb")?,
            open_files: limits.whole("open_files")?,
            output_kb: limits.whole("output_kb")?,
        },
        collect_files: false,
    })
}

fn input(mut given: Arguments) -> Result<InputFile, Refusal> {
    let path = given.required_text("path")?;
    let content = match (given.text("text")?, given.text("base64")?) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text.trim()).map_err(|error| {
            let message = format!("`{}.base64` is not base64: {error}", given.place());
            refusal(message, "encode the bytes with the standard alphabet and padding")
        })?,
        (None, None) | (Some(_), Some(_)) => {
            let message = format!("`{}` needs either `text` or `base64`", given.place());
            return Err(refusal(message, "give exactly one of the two"));
        }
    };
    Ok(InputFile { path, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: Value) -> Result<RunRequest, Refusal> {
        let Value::Object(given) = given else { panic!("an object") };
        request(given)
    }

    #[test]
    fn everything_is_taken_over() {
        let run = parse(json!({
            "language": "python", "code": "1", "args": ["a"], "stdin": "in", "variables": {"x": [1, null]},
            "inputs": [{"path": "t", "text": "é"}, {"path": "b", "base64": "AP8="}],
            "timeout_ms": 5000, "limits": {"memory_mb": 64, "cpus": 0.5}
        }))
        .unwrap();
        assert_eq!((run.language.as_str(), run.args.as_slice()), ("python", &["a".to_owned()][..]));
        assert_eq!(run.inputs[1].content, [0, 255]);
        assert_eq!((run.ask.timeout_ms, run.ask.memory_mb, run.ask.cpus), (Some(5000), Some(64), Some(0.5)));
        assert!(matches!(run.stdin, Stdin::Bytes(bytes) if bytes == b"in"));
        assert_eq!(run.variables["x"], json!([1, null]));
    }

    #[test]
    fn what_the_schema_does_not_say_is_refused() {
        for bad in [
            json!({"code": "1"}),
            json!({"language": "python"}),
            json!({"language": "python", "code": 1}),
            json!({"language": "python", "code": "1", "timeout": 5}),
            json!({"language": "python", "code": "1", "timeout_ms": "5"}),
            json!({"language": "python", "code": "1", "limits": {"memory": 5}}),
            json!({"language": "python", "code": "1", "limits": 5}),
            json!({"language": "python", "code": "1", "args": "a"}),
            json!({"language": "python", "code": "1", "stdin": null}),
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

    #[test]
    fn run_ids_differ() {
        let (first, second) = (run_id().unwrap(), run_id().unwrap());
        assert_ne!(first, second);
        assert_eq!(first.len(), "run_".len() + 2 * RUN_ID_BYTES);
    }
}
