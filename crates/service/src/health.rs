//! The pages for monitoring: `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use engine::Caller;
use serde_json::json;

use super::App;
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
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
    (status, headers, format!("{page}\n"))
}

/// `/metrics`: counters and levels of this server.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let levels = Levels {
        connections: app.slots.count(),
        requests: app.slots.requests(),
        sessions: app.sessions.count(),
    };
    let page = metrics::page(&app.counters, &levels, &app.server.runs().snapshot());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}
