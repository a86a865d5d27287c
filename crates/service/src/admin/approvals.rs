//! Approvals: listed, shown and decided by callers with the scope `approve`, never about their own calls.

use std::sync::Arc;

use engine::admin::{Page, approvals_in_order};
use engine::{ApprovalId, Approver, Choice, Fold, Listed, shown_arguments};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::Ask;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    #[serde(default)]
    reason: Option<String>,
}

/// `GET /approvals`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let which = match ask.parameter("state") {
            None | Some("open") => Listed::Open,
            Some("all") => Listed::All,
            Some(_) => {
                let message = "the parameter `state` has no such value";
                return Err(Refusal::bad("bad_query", message, "give open or all"));
            }
        };
        let listed = admin.runs.engine().gatekeeper().approvals().list(which).await?;
        let page = approvals_in_order(listed, &ask.page()?);
        let items: Vec<Value> = page.items.iter().map(engine::Approval::to_json).collect();
        Answer::page(&Page { items, next: page.next })
    })
}

/// `GET /approvals/{approval_id}`.
pub(super) fn get(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let approvals = admin.runs.engine().gatekeeper().approvals();
        let (approval, arguments) = approvals.get(&id(&ask)?).await?;
        let mut told = approval.to_json();
        told["shown"] = json!(shown_arguments(&arguments, Fold::Whole).text);
        told["arguments"] = arguments;
        Answer::ok(&told)
    })
}

/// `POST /approvals/{approval_id}/approve`.
pub(super) fn approve(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(decide(admin, ask, Choice::Approve))
}

/// `POST /approvals/{approval_id}/deny`.
pub(super) fn deny(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(decide(admin, ask, Choice::Deny))
}

async fn decide(admin: Arc<Admin>, ask: Ask, choice: Choice) -> Result<Answer, Refusal> {
    let Reason { reason } = ask.body()?;
    // The user of the server can change every policy and key, also with the command line.
    let approver = match ask.is_from_owner {
        true => Approver::Local,
        false => Approver::Caller(ask.caller.clone()),
    };
    let gatekeeper = admin.runs.engine().gatekeeper();
    let decided = gatekeeper.approvals().decide(&id(&ask)?, choice, approver, reason).await?;
    gatekeeper.audit().note(decided.decided_event());
    Answer::ok(&decided.to_json())
}

fn id(ask: &Ask) -> Result<ApprovalId, Refusal> {
    ApprovalId::parse(ask.id()).ok_or_else(|| {
        let message = "there is no approval with this id";
        Refusal::not_found("unknown_approval", message, "see GET /admin/v1/approvals")
    })
}
