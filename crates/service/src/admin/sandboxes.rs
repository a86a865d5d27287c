//! Persistent sandboxes of all principals: listed and closed.

use std::sync::Arc;

use engine::SandboxId;
use engine::audit::Event;
use serde_json::json;

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::Ask;
use super::keys::{Empty, tell};

/// `GET /sandboxes`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        Answer::page(&admin.runs.sandboxes().list_across(&ask.operator()?, &ask.page()?).await?)
    })
}

/// `POST /sandboxes/{sandbox_id}/close`.
pub(super) fn close(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Empty {} = ask.body()?;
        let id = SandboxId::parse(ask.id()).ok_or_else(unknown)?;
        match admin.runs.sandboxes().close_across(&ask.operator()?, &id).await? {
            true => {
                let event = Event::new("sandbox_closed_by_operator").with("sandbox_id", id.as_str());
                tell(&admin, event.by(&ask.caller));
                Answer::ok(&json!({ "sandbox_id": id.as_str(), "closed": true }))
            }
            false => Err(unknown()),
        }
    })
}

fn unknown() -> Refusal {
    let message = "there is no sandbox with this sandbox_id";
    Refusal::not_found("unknown_sandbox", message, "see GET /admin/v1/sandboxes")
}
