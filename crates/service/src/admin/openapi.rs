//! The OpenAPI 3.1 document of the admin API, made of the table of its routes.
//!
//! `cargo xtask manifests` writes it to `manifests/openapi.json` by a role of the binary, and the server answers with it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use policy::Scope;
use serde_json::{Map, Value, json};

use super::answer::Answering;
use super::ask::Ask;
use super::table::{LINES, ROUTES, Route, Verb};
use super::{Admin, V1, schema};

/// First argument that chooses the role of the binary.
const ROLE: &str = "__openapi";
const OPENAPI: &str = "3.1.0";
/// Statuses that every route can have.
const ALWAYS: [u16; 4] = [400, 401, 403, 500];
/// Statuses that every route with a body can have.
const WITH_BODY: [u16; 3] = [408, 413, 415];

/// Prints the document if the first argument selects this role.
pub fn take_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE || arguments.next().is_some() {
        return None;
    }
    let is_out = writeln!(std::io::stdout().lock(), "{:#}", document()).is_ok();
    Some(if is_out { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `GET /openapi.json`.
pub(super) fn handle(_admin: Arc<Admin>, _ask: Ask) -> Answering {
    Box::pin(async { super::answer::Answer::ok(&document()) })
}

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in &ROUTES {
        let methods = paths.entry(format!("{V1}{}", route.path)).or_default();
        methods.insert(route.verb.name().to_owned(), operation(route));
    }
    json!({
        "openapi": OPENAPI,
        "info": {
            "title": "Palisade admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Every request shows a credential. Every answer is JSON that is not cached. Errors have a \
                            stable code, a message and a remedy.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": schema::all(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let scopes: Vec<_> = route.needs.iter().copied().map(Scope::name).collect();
    let mut told = json!({
        "operationId": route.name,
        "summary": route.about,
        "description": format!("Needs the scope {}.", scopes.join(" or ")),
        "x-palisade-scopes": scopes,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if let Some(body) = route.body {
        told["requestBody"] = json!({ "required": true, "content": content(body) });
    }
    told
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let in_query = route.query.iter().map(|given| {
        let schema = schema::reference(given.schema);
        json!({ "name": given.name, "in": "query", "description": given.about, "required": false, "schema": schema })
    });
    in_path.chain(in_query).collect()
}

fn responses(route: &Route) -> Map<String, Value> {
    let with_body = WITH_BODY.into_iter().filter(|_| route.verb == Verb::Post);
    let refusals = ALWAYS.into_iter().chain(with_body).chain(route.refusals.iter().copied());
    let refusals = refusals.map(|status| (status, "Error")).chain([route.answer]);
    let sorted: BTreeMap<u16, &str> = refusals.collect();
    let told = |(status, schema): (u16, &str)| {
        (status.to_string(), json!({ "description": meaning(status), "content": content(schema) }))
    };
    sorted.into_iter().map(told).collect()
}

fn content(schema: &str) -> Value {
    let media = if schema == LINES { "application/x-ndjson" } else { "application/json" };
    json!({ media: { "schema": schema::reference(schema) } })
}

fn meaning(status: u16) -> &'static str {
    match status {
        200 => "Done",
        201 => "Made",
        400 => "The request is not what this path takes",
        401 => "No credential, or one that does not count",
        403 => "The credential lacks the scope, or the page or host name may not use this server",
        404 => "There is no such thing",
        408 => "The body did not come in time",
        409 => "The state of the thing does not allow it",
        413 => "The body is too long",
        415 => "The body is not JSON",
        500 => "A fault of the server",
        503 => "Not possible now",
        _ => "Other",
    }
}
