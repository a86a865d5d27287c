//! `wait`: follows a run that was handed over, or cancels it.

use std::time::Duration;

use engine::{FoundRun, RunError, RunId, Stop};
use rmcp::model::{CallToolResponse, JsonObject};
use serde_json::json;

use super::following::{Followed, Follower, OnDisconnect, patience};
use super::{Effects, Needs, Offer, Scope, ToolCall, ToolEntry, install, refused, report};

use crate::approvals::nested::NestedAnswer;
use crate::arguments::Refusal;
use crate::{file_urls, schema};

/// Maximum time until a cancelled run ends.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Name of the tool.
pub(crate) const NAME: &str = "wait";

/// The tool.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: NAME,
    title: "Wait for a run",
    description: "Wait for a run that is still going, by its run_id, and return its result; or cancel it.",
    effects: Effects::Repeats,
    scope: Scope::Run,
    needs: Needs::Language,
    properties: &["run_id", "timeout_ms", "cancel"],
    input,
    output: install::wait_output,
    call: |call| Box::pin(async move { answer(call).await }),
};

/// Answers the tool.
async fn answer(call: ToolCall<'_>) -> CallToolResponse {
    let ToolCall { server, caller, context, .. } = call;
    let asked = match asked(call.given) {
        Ok(asked) => asked,
        Err(error) => return refused(&error).into(),
    };
    // The client may have answered a question of this run.
    let answered = NestedAnswer::of(server, caller, call.input).await.filter(|one| one.run == asked.id);
    if let Some(answered) = &answered {
        answered.decide(server).await;
    }
    let id = asked.id;
    let (run, patience) = match server.runs.find(caller, &id).await {
        Ok(Some(FoundRun::Finished(run))) => {
            return report::finished(server, caller, &run, file_urls(context).as_ref()).await.into();
        }
        Ok(Some(FoundRun::Elsewhere(_))) => return report::elsewhere(&id).into(),
        Ok(Some(FoundRun::Live(run))) if asked.is_cancelled => {
            run.stop(Stop::Cancelled);
            (run, END_PATIENCE)
        }
        Ok(Some(FoundRun::Live(run))) => (run, asked.patience),
        Ok(None) => return refused(&unknown_run()).into(),
        Err(error) => return refused(&error).into(),
    };
    let seen = answered.map(|answered| answered.id);
    let mut follower = Follower::new(server, context, run.clone()).asking(true, seen);
    let followed = follower.follow_asking(patience, OnDisconnect::Detach).await;
    follower.end().await;
    match followed {
        Followed::Finished(run) => {
            report::finished(server, caller, &run, file_urls(context).as_ref()).await.into()
        }
        Followed::Over => report::running(server, caller, &run).await.into(),
        Followed::Asks(question) => match question.input_required(server, caller, run.id()).await {
            Some(input) => input.into(),
            None => report::running(server, caller, &run).await.into(),
        },
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
