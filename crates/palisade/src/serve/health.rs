//! `/healthz`: the process answers. `/readyz`: runs work, by canaries through the whole path.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::App;
use super::metrics::{self, Levels};

pub(crate) async fn alive() -> impl IntoResponse {
    "ok\n"
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let levels = Levels {
        connections: app.seats.count(),
        requests: app.seats.requests(),
        sessions: app.sessions.count(),
    };
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::page(&app.counters, &levels))
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> impl IntoResponse {
    if app.closing.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "closing\n");
    }
    (StatusCode::OK, "ready\n")
}
