//! The metadata of this server as a protected resource (RFC 9728): where clients get a token, and for which scopes.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use policy::{Scope, Scopes};
use serde_json::{Value, json};

use super::Oauth;
use super::address::METADATA_PATH;

/// The scopes that a client asks for when it does not know better: those of the tools. Scopes of operators are not
/// among them, because clients take all that they are told.
pub(super) const OFFERED: [Scope; 2] = [Scope::Run, Scope::Sandbox];

/// The routes, open to every caller.
pub(crate) fn routes(oauth: &Oauth) -> Router {
    let document = document(oauth).to_string();
    let answer = get(move || async move { ([(CONTENT_TYPE, "application/json")], document) });
    let mut paths =
        vec![METADATA_PATH.to_owned(), format!("{METADATA_PATH}/mcp"), oauth.resource.metadata_path()];
    paths.sort_unstable();
    paths.dedup();
    paths.into_iter().fold(Router::new(), |router, path| router.route(&path, answer.clone()))
}

/// Whether a path is one of the metadata's.
pub(crate) fn is_metadata(path: &str) -> bool {
    path.strip_prefix(METADATA_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn document(oauth: &Oauth) -> Value {
    let issuers: Vec<_> = oauth.issuers.iter().map(|keys| keys.issuer.as_str()).collect();
    json!({
        "resource": oauth.resource.as_str(),
        "authorization_servers": issuers,
        "scopes_supported": OFFERED.map(Scope::oauth_name),
        "bearer_methods_supported": ["header"],
        "resource_name": "Palisade",
    })
}

/// The names of scopes as a challenge lists them (RFC 6750, section 3).
pub(super) fn names(scopes: Scopes) -> String {
    scopes.iter().map(Scope::oauth_name).collect::<Vec<_>>().join(" ")
}
