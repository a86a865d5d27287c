//! `wait`: follows a run that was handed over, or ends it.

use std::time::Duration;

use engine::{FoundRun, LiveRun, Principal, RunError, RunId, Stop};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;

use super::following::{Follower, OnDisconnect, patience};
use super::{refused, report};
use crate::arguments::{Arguments, Refusal};
use crate::{Server, file_urls, schema};

/// Its name.
pub(crate) const NAME: &str = "wait";
/// A run that is cancelled ends within this time.
const END_PATIENCE: Duration = Duration::from_secs(10);

const DESCRIPTION: &str = "Wait for a run that is still going, by its run_id, and return its result; or cancel it. Works again after the end.";

/// What clients see.
pub(crate) fn tool() -> Tool {
    let annotations =
        ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(false);
    Tool::new(NAME, DESCRIPTION, schema::wait_input())
        .with_title("Wait for a run")
        .with_raw_output_schema(schema::run_output().into())
        .with_annotations(annotations)
}

/// Answers the tool.
pub(crate) async fn call(
    server: &Server,
    principal: &Principal,
    given: JsonObject,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let asked = match asked(given) {
        Ok(asked) => asked,
        Err(error) => return refused(&error),
    };
    let id = asked.id;
    match server.runs.find(principal, &id).await {
        Ok(Some(FoundRun::Finished(run))) => {
            report::finished(server, &run, file_urls(context).as_ref()).await
        }
        Ok(Some(FoundRun::Elsewhere(_))) => report::elsewhere(&id),
        Ok(Some(FoundRun::Live(run))) if asked.is_cancelled => {
            run.stop(Stop::Cancelled);
            follow(server, principal, run, context, END_PATIENCE).await
        }
        Ok(Some(FoundRun::Live(run))) => follow(server, principal, run, context, asked.patience).await,
        Ok(None) => refused(&unknown_run()),
        Err(error) => refused(&error.to_run_error()),
    }
}

async fn follow(
    server: &Server,
    principal: &Principal,
    run: LiveRun,
    context: &RequestContext<RoleServer>,
    patience: Duration,
) -> CallToolResult {
    let mut follower = Follower::new(server, context, principal, run.clone());
    let followed = follower.follow(patience, OnDisconnect::Detach).await;
    follower.end().await;
    match followed {
        Some(run) => report::finished(server, &run, file_urls(context).as_ref()).await,
        None => report::running(server, principal, &run).await,
    }
}

struct Asked {
    id: RunId,
    patience: Duration,
    is_cancelled: bool,
}

fn asked(given: JsonObject) -> Result<Asked, Refusal> {
    let mut arguments = Arguments::new("", &schema::WAIT, given)?;
    let id = arguments.required_text("run_id")?;
    let patience = patience(arguments.whole("timeout_ms")?);
    let is_cancelled = arguments.truth("cancel")?.unwrap_or(false);
    // An id that cannot be is answered like one that is not.
    let id = RunId::parse(&id).ok_or_else(|| Box::new(unknown_run()))?;
    Ok(Asked { id, patience, is_cancelled })
}

fn unknown_run() -> RunError {
    RunError::new("unknown_run", "there is no run with this run_id")
        .remedy("use the run_id of an earlier answer; runs are kept for some days only")
}
