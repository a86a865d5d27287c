//! Runs of all principals: listed, looked at and ended.

use std::sync::Arc;

use engine::RunId;
use engine::audit::Event;

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::Ask;
use super::keys::{Empty, tell};

/// `GET /runs`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move { Answer::page(&admin.runs.list_across(&ask.operator()?, &ask.page()?).await?) })
}

/// `GET /runs/{run_id}`.
pub(super) fn get(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let found = admin.runs.look_across(&ask.operator()?, &id(&ask)?).await?;
        Answer::ok(&found.ok_or_else(unknown)?)
    })
}

/// `POST /runs/{run_id}/cancel`.
pub(super) fn cancel(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Empty {} = ask.body()?;
        let ended = admin.runs.end_across(&ask.operator()?, &id(&ask)?).await?;
        let ended = ended.ok_or_else(unknown)?;
        tell(&admin, Event::new("run_ended_by_operator").with("run_id", ask.id()).by(&ask.caller));
        Answer::ok(&ended)
    })
}

fn id(ask: &Ask) -> Result<RunId, Refusal> {
    RunId::parse(ask.id()).ok_or_else(unknown)
}

fn unknown() -> Refusal {
    Refusal::not_found("unknown_run", "there is no run with this run_id", "see GET /admin/v1/runs")
}
