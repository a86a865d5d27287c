//! The admin API, `/admin/v1`: keys, policies, approvals, runs, sandboxes, audit and quotas, as JSON over HTTP.
//!
//! ```text
//! gate (Host, Origin, credential) -> route of the table -> scope -> media type, body, query -> handler -> engine::admin
//! ```
//! One table ([`table::ROUTES`]) drives the router and the OpenAPI document. Handlers are thin: what they do is in
//! `engine::admin`, which the command line uses too. A request without a credential reaches nothing here, also on a
//! server that asks for none: whoever can reach the port would otherwise make keys and approve their own calls. Requests
//! that change something are POST with a JSON body, which no form of a web page can send.

mod answer;
mod approvals;
mod ask;
mod audit;
mod keys;
mod openapi;
mod policies;
mod quotas;
mod runs;
mod sandboxes;
mod schema;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use axum::{Extension, Router};
use engine::{Caller, Keys, Runs};
use policy::Principal;
use tokio::sync::Semaphore;

use self::answer::Refusal;
pub(crate) use self::answer::in_own_form;
use self::ask::Ask;
pub use self::openapi::take_role as take_openapi_role;
use self::table::{ROUTES, Route, Verb};

/// Beneath this path everything is the admin API's.
const PREFIX: &str = "/admin";
/// The first version.
const V1: &str = "/admin/v1";
/// Why a request without a credential is refused, also by a server that asks for none.
pub(crate) const NO_CREDENTIAL: &str = "the admin API needs a credential on every server: the server's own token, or a \
                                        key (`palisade keys create NAME --scope admin`)";

/// What the handlers work with.
pub(crate) struct Admin {
    runs: Arc<Runs>,
    keys: Arc<Keys>,
    state_dir: PathBuf,
    /// Places for work on the whole audit.
    audit_places: Arc<Semaphore>,
}

impl Admin {
    pub(crate) fn new(runs: &Arc<Runs>, state_dir: &Path) -> Arc<Self> {
        let keys = Arc::new(Keys::new(state_dir));
        let audit_places = Arc::new(Semaphore::new(audit::AT_ONCE_MAX));
        Arc::new(Self { runs: Arc::clone(runs), keys, state_dir: state_dir.to_owned(), audit_places })
    }
}

/// Whether a path is the admin API's, existing or not.
pub(crate) fn is_path(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a caller shows no credential: then nothing here is for it.
pub(crate) fn is_nobody(caller: &Caller) -> bool {
    caller.principal == Principal::anonymous()
}

/// The routes of the table. Every other path and method beneath the prefix gets an error of the same form.
pub(crate) fn routes(admin: Arc<Admin>) -> Router {
    let mut by_path: BTreeMap<&str, MethodRouter<Arc<Admin>>> = BTreeMap::new();
    for route in &ROUTES {
        let filter = match route.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
        };
        let handle = move |admin, caller, given, request| carry_out(route, admin, caller, given, request);
        let others = by_path.remove(route.path).unwrap_or_default();
        by_path.insert(route.path, others.merge(on(filter, handle)));
    }
    let mut router = Router::new();
    for (path, methods) in by_path {
        let wrong_method = || async { Refusal::method().into_response() };
        router = router.route(&format!("{V1}{path}"), methods.fallback(wrong_method));
    }
    let nothing = || any(|| async { Refusal::no_such_path().into_response() });
    let beneath = format!("{PREFIX}/{{*rest}}");
    router
        .route(PREFIX, nothing())
        .route(&format!("{PREFIX}/"), nothing())
        .route(&beneath, nothing())
        .with_state(admin)
}

/// Answers a request of one route.
async fn carry_out(
    route: &'static Route,
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    given: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    if !route.needs.iter().any(|scope| caller.may(*scope)) {
        return Refusal::scope(route.needs).into_response();
    }
    let Ok(given) = given else {
        return Refusal::bad("bad_id", "the id in the path is not UTF-8", "give an id of a list")
            .into_response();
    };
    let id = given.iter().next().map(|(_, value)| value.to_owned());
    let done = match Ask::read(route, caller, id, request).await {
        Ok(ask) => (route.handle)(admin, ask).await,
        Err(refusal) => Err(refusal),
    };
    match done {
        Ok(answer) => answer.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}
