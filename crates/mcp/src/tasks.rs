//! Tasks (extension io.modelcontextprotocol/tasks): a run that was handed over. The task id is the run id.
//!
//! The store has the run before any client learns its task. A task therefore survives the server: after a
//! crash it is completed with the outcome `killed`.

use engine::{Caller, FinishedRun, FoundRun, LiveRun, RunId, Stop};
use rmcp::model::{
    CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, JsonObject, Task, TaskPayload, TaskStatus,
};
use sandbox::Outcome;
use serde_json::{Value, json};

use super::Server;
use super::doors::Door;
use super::tools::report;
use crate::file_urls::FileUrls;
use crate::render;

/// Suggested polling interval for clients.
const POLL_MS: u64 = 1000;

/// The answer to a call whose run continues.
pub(crate) fn created(run: &LiveRun) -> CreateTaskResult {
    CreateTaskResult::new(task(run.id(), run.created_ms(), run.created_ms()))
}

/// `tasks/get`.
pub(crate) async fn get(
    server: &Server,
    caller: &Caller,
    id: &str,
    file_urls: Option<&FileUrls>,
) -> Result<GetTaskResult, ErrorData> {
    let found = find(server, caller, Door::TaskGet, id).await?;
    let (task, payload) = match found {
        FoundRun::Live(run) => (task(run.id(), run.created_ms(), run.created_ms()), TaskPayload::Working),
        FoundRun::Elsewhere(run) => (task(&run.id, run.created_ms, run.created_ms), TaskPayload::Working),
        FoundRun::Finished(run) => {
            (task(&run.id, run.created_ms, run.ended_ms), payload(server, caller, &run, file_urls).await)
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// `tasks/cancel`: requests the end of the run; the state changes shortly after.
pub(crate) async fn cancel(server: &Server, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    if let FoundRun::Live(run) = find(server, caller, Door::TaskCancel, id).await? {
        run.stop(Stop::Cancelled);
    }
    Ok(())
}

/// `tasks/update`: no task of this server asks for input.
pub(crate) async fn update(server: &Server, caller: &Caller, id: &str) -> Result<(), ErrorData> {
    find(server, caller, Door::TaskUpdate, id).await.map(drop)
}

async fn find(server: &Server, caller: &Caller, door: Door, id: &str) -> Result<FoundRun, ErrorData> {
    let unknown = || ErrorData::invalid_params("there is no such task", None);
    let id = RunId::parse(id).ok_or_else(unknown)?;
    let mut asked = json!({ "run_id": id.as_str() });
    if door == Door::TaskCancel {
        asked["cancel"] = json!(true);
    }
    let opened = door.open(server.engine.gatekeeper(), caller, asked).await;
    let admitted = opened.map_err(|closed| closed.into_error(unknown()))?;
    let found = server.runs.find(caller, &id).await;
    let found = found.map_err(|error| ErrorData::internal_error(error.message, None))?;
    // A run that does not exist is refused by the tool, and not counted.
    admitted.settle(found.is_none().then_some(Outcome::Refused)).await;
    found.ok_or_else(unknown)
}

async fn payload(
    server: &Server,
    caller: &Caller,
    run: &FinishedRun,
    file_urls: Option<&FileUrls>,
) -> TaskPayload {
    if run.result.outcome == Outcome::Cancelled {
        return TaskPayload::Cancelled;
    }
    // Serializing the server's own answer does not fail.
    let result = match serde_json::to_value(report::finished(server, caller, run, file_urls).await) {
        Ok(Value::Object(result)) => result,
        _ => JsonObject::new(),
    };
    TaskPayload::Completed { result }
}

fn task(id: &RunId, created_ms: u64, updated_ms: u64) -> Task {
    let (created, updated) = (render::timestamp(created_ms), render::timestamp(updated_ms));
    Task::new(id.as_str().to_owned(), TaskStatus::Working, created, updated).with_poll_interval_ms(POLL_MS)
}
