//! The pages for monitoring: `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use engine::Caller;
use policy::Scope;
use serde_json::{Value, json};

use super::App;
use super::gate;
use super::metrics::{self, Levels};

/// `/healthz`: the process answers.
pub(crate) async fn alive() -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], "ok\n")
}

/// `/readyz`: runs work.
pub(crate) async fn ready(
    State(app): State<Arc<App>>,
    caller: Option<Extension<Caller>>,
) -> impl IntoResponse {
    let caller = caller.filter(|Extension(caller)| may_look(caller));
    let (status, page) = if app.closing.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, json!({ "ready": false, "broken": { "server": "it is closing" } }))
    } else if let Some(failure) = app.server.runs().engine().wall_failure() {
        // This needs no check, and is newer than the recorded findings.
        let reason = match caller {
            Some(_) => json!(format!("{}: {}", failure.summary(), failure.remedy)),
            None => json!(true),
        };
        (StatusCode::SERVICE_UNAVAILABLE, json!({ "ready": false, "broken": { "wall": reason } }))
    } else {
        match app.readiness.findings(&app.server).await {
            Some(found) if found.is_ready() => (StatusCode::OK, found.page(caller.is_some())),
            Some(found) => (StatusCode::SERVICE_UNAVAILABLE, found.page(caller.is_some())),
            None => {
                let page = json!({ "ready": false, "broken": { "canaries": "they take too long" } });
                (StatusCode::SERVICE_UNAVAILABLE, page)
            }
        }
    };
    let page = with_policies(page, &app, caller.as_deref());
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
    (status, headers, format!("{page}\n"))
}

/// Tells that newer policies cannot be used. The server stays ready, because the old ones are in force. Only who may
/// read the audit trail sees the reason.
fn with_policies(mut page: Value, app: &App, caller: Option<&Caller>) -> Value {
    if let Some(flaw) = app.server.runs().engine().gatekeeper().flaw() {
        let may_see = caller.is_some_and(may_look);
        page["outdated"] = json!({ "policies": if may_see { json!(flaw) } else { json!(true) } });
    }
    page
}

/// Whether a caller may see more than that the server works.
fn may_look(caller: &Caller) -> bool {
    caller.may(Scope::Admin) || caller.may(Scope::Audit)
}

/// `/metrics`: counters and levels of this server.
pub(crate) async fn metrics(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    if !may_look(&caller) {
        let reason = "this page needs a key with the scope `audit` or `admin`, or the server's own token";
        return gate::refusal_of(StatusCode::FORBIDDEN, reason);
    }
    let levels = Levels {
        connections: app.slots.count(),
        requests: app.slots.requests(),
        sessions: app.sessions.count(),
    };
    let page = metrics::page(&app.counters, &levels, &app.server.runs().snapshot());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}
