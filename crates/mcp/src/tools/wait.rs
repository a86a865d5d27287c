//! `wait`: follows a run that was handed over, or cancels it.

use std::time::Duration;

use engine::{Caller, FoundRun, LiveRun, RunError, RunId, Stop};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use serde_json::json;

use super::following::{Follower, OnDisconnect, patience};
use super::{Effects, Needs, Offer, Scope, ToolEntry, refused, report};

use crate::arguments::Refusal;
use crate::{Server, file_urls, schema};

/// Maximum time until a cancelled run ends.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "wait",
    title: "Wait for a run",
    description: "Wait for a run that is still going, by its run_id, and return its result; or cancel it. Works again after the end.",
    effects: Effects::Repeats,
    scope: Scope::Run,
    needs: Needs::Language,
    properties: &["run_id", "timeout_ms", "cancel"],
    input,
    output: schema::run_output,
    call: |call| {
        Box::pin(async move { answer(call.server, call.caller, call.given, call.context).await.into() })
    },
};

/// Answers the tool.
async fn answer(
    server: &Server,
    caller: &Caller,
    given: JsonObject,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let asked = match asked(given) {
        Ok(asked) => asked,
        Err(error) => return refused(&error),
    };
    let id = asked.id;
    match server.runs.find(caller, &id).await {
        Ok(Some(FoundRun::Finished(run))) => {
            report::finished(server, caller, &run, file_urls(context).as_ref()).await
        }
        Ok(Some(FoundRun::Elsewhere(_))) => report::elsewhere(&id),
        Ok(Some(FoundRun::Live(run))) if asked.is_cancelled => {
            run.stop(Stop::Cancelled);
            follow(server, caller, run, context, END_PATIENCE).await
        }
        Ok(Some(FoundRun::Live(run))) => follow(server, caller, run, context, asked.patience).await,
        Ok(None) => refused(&unknown_run()),
        Err(error) => refused(&error),
    }
}

async fn follow(
    server: &Server,
    caller: &Caller,
    run: LiveRun,
    context: &RequestContext<RoleServer>,
    patience: Duration,
) -> CallToolResult {
    let mut follower = Follower::new(server, context, run.clone());
    let followed = follower.follow(patience, OnDisconnect::Detach).await;
    follower.end().await;
    match followed {
        Some(run) => report::finished(server, caller, &run, file_urls(context).as_ref()).await,
        None => report::running(server, caller, &run).await,
    }
}

struct WaitArguments {
    id: RunId,
    patience: Duration,
    is_cancelled: bool,
}

fn asked(given: JsonObject) -> Result<WaitArguments, Refusal> {
    let mut arguments = TOOL.arguments(given)?;
    let id = arguments.required_text("run_id")?;
    let patience = patience(arguments.whole("timeout_ms")?);
    let is_cancelled = arguments.truth("cancel")?.unwrap_or(false);
    // A malformed id gets the same answer as an unknown one.
    let id = RunId::parse(&id).ok_or_else(|| Box::new(unknown_run()))?;
    Ok(WaitArguments { id, patience, is_cancelled })
}

fn unknown_run() -> RunError {
    RunError::new("unknown_run", "there is no run with this run_id")
        .remedy("use the run_id of an earlier answer; runs are kept for some days only")
}

/// Schema of the arguments of `wait`.
fn input(_: &Offer<'_>) -> JsonObject {
    schema::object(json!({
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
