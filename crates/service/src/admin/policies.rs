//! Policies: listed with their bindings, explained, and read again.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use engine::admin::{self, ExplainedCall, Page, caller_named};
use policy::{Caller, Claims};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Admin;
use super::answer::{Answer, Answering, Refusal};
use super::ask::{Ask, cursor_text};
use super::keys::{Empty, of_keys};

/// How long a reload may take.
const RELOAD_PATIENCE: Duration = Duration::from_secs(5);
/// Claims of an explained caller.
const CLAIMS_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    principal: String,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    #[serde(default)]
    claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    name: String,
    value: String,
}

/// `GET /policies`.
pub(super) fn list(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let gatekeeper = admin.runs.engine().gatekeeper();
        let book = gatekeeper.book();
        let named = book.names().into_iter().filter_map(|name| book.get(name));
        let page = Page::of(named, &ask.page()?, |named| named.name.clone());
        let items: Vec<Value> = page
            .items
            .iter()
            .map(|named| {
                let notes: Vec<String> = named.rules.notes().iter().map(ToString::to_string).collect();
                json!({ "name": named.name, "description": named.rules.description, "notes": notes })
            })
            .collect();
        let next = page.next.as_deref().map(cursor_text);
        Answer::ok(&json!({ "items": items, "next_cursor": next, "flaw": gatekeeper.flaw() }))
    })
}

/// `GET /policies/bindings`.
pub(super) fn bindings(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let book = admin.runs.engine().gatekeeper().book();
        let numbered = book.bindings().iter().enumerate();
        let page = Page::of(numbered, &ask.page()?, |(place, _)| format!("{place:010}"));
        let items: Vec<Value> = page
            .items
            .iter()
            .map(|(place, binding)| json!({ "number": place + 1, "match": binding.callers, "policy": binding.policy }))
            .collect();
        Answer::page(&Page { items, next: page.next })
    })
}

/// `POST /policies/explain`.
pub(super) fn explain(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let wanted: Explained = ask.body()?;
        if wanted.claims.len() > CLAIMS_MAX {
            return Err(Refusal::bad("too_many_claims", "a caller has at most 64 claims", "name fewer"));
        }
        let keys = of_keys(&admin, |keys| keys.list()).await?;
        let caller = caller_named(&wanted.principal, &keys).ok_or_else(|| {
            let remedy = "give local, owner, or key:NAME";
            Refusal::bad("bad_principal", "no caller can have this name", remedy)
        })?;
        let claims =
            Claims::new(wanted.claims.iter().map(|claim| (claim.name.as_str(), claim.value.as_str())));
        let caller = Caller { claims, ..caller };
        let (book, state_dir) = (admin.runs.engine().gatekeeper().book(), admin.state_dir.clone());
        let arguments = mcp::judged_arguments(wanted.arguments);
        let explained = tokio::task::spawn_blocking(move || {
            let call = ExplainedCall { caller: &caller, tool: &wanted.tool, arguments: &arguments };
            admin::explain(&book, Some(&state_dir), call, None).to_json()
        });
        Answer::ok(&explained.await.map_err(|_| Refusal::own("the call could not be explained"))?)
    })
}

/// `POST /policies/reload`.
pub(super) fn reload(admin: Arc<Admin>, ask: Ask) -> Answering {
    Box::pin(async move {
        let Empty {} = ask.body()?;
        let gatekeeper = admin.runs.engine().gatekeeper();
        tracing::info!(principal = %ask.caller, "policy_reload_asked");
        match gatekeeper.reload(RELOAD_PATIENCE).await {
            Some(read) => Answer::ok(&json!({ "in_force": read.is_ok(), "flaw": read.err() })),
            None => {
                let message = "the policy files were not read in time";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "reload_slow", message, "try again later"))
            }
        }
    })
}
