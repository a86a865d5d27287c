//! Challenges: what a client without a token, with a wrong one, or with too few scopes is told (RFC 6750, RFC 9728).
//!
//! A call that lacks a scope is refused before its answer begins, because a client reads the challenge only from the
//! status and the headers. The engine judges the same call again.

use std::sync::Arc;

use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use engine::Caller;
use mcp::message::Incoming;
use policy::Scopes;
use rmcp::model::RequestId;
use serde_json::{Value, json};

use super::metadata::{OFFERED, names};
use crate::gate;

const INSUFFICIENT_SCOPE: &str = "insufficient_scope";

/// The challenge to a request without a caller. `refused` says why the credential that it showed does not count.
pub(super) fn unidentified(metadata: &str, refused: Option<&str>) -> String {
    let mut challenge = format!(
        "Bearer realm=\"palisade\", resource_metadata=\"{metadata}\", scope=\"{}\"",
        names(Scopes::of(&OFFERED))
    );
    if let Some(description) = refused {
        challenge.push_str(&format!(", error=\"invalid_token\", error_description=\"{description}\""));
    }
    challenge
}

/// Refuses calls of an OAuth caller that need more scopes. An extension of its requests.
#[derive(Debug, Clone)]
pub(crate) struct ScopeChallenge {
    held: Scopes,
    metadata: Arc<str>,
}

/// A call that lacks a scope.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    id: RequestId,
    /// The scopes that the call needs, and those that the token has: a client asks for all of them at once.
    scopes: Scopes,
    metadata: Arc<str>,
}

impl ScopeChallenge {
    pub(super) fn new(caller: &Caller, metadata: Arc<str>) -> Self {
        Self { held: caller.scopes, metadata }
    }

    /// What a message lacks.
    pub(crate) fn lacking(&self, message: &Incoming) -> Option<Lacking> {
        let (id, needed) = mcp::scopes_of_message(message)?;
        if needed.iter().all(|scope| self.held.contain(scope)) {
            return None;
        }
        let scopes = self.held.iter().chain(needed.iter()).collect();
        Some(Lacking { id, scopes, metadata: Arc::clone(&self.metadata) })
    }
}

impl Lacking {
    /// The JSON-RPC error. Codes in the protocol's own range have defined meanings, so the code is the HTTP status.
    pub(crate) fn error(&self) -> Value {
        let scopes = names(self.scopes);
        json!({"jsonrpc": "2.0", "id": self.id, "error": {
            "code": StatusCode::FORBIDDEN.as_u16(),
            "message": format!("the access token lacks a scope: this call needs {scopes}"),
            "data": {"error": INSUFFICIENT_SCOPE, "scope": scopes, "resource_metadata": &*self.metadata},
        }})
    }

    /// The refusal over HTTP.
    pub(crate) fn response(&self) -> Response {
        let mut response = gate::json(StatusCode::FORBIDDEN, &self.error());
        let challenge = format!(
            "Bearer error=\"{INSUFFICIENT_SCOPE}\", scope=\"{}\", resource_metadata=\"{}\", \
             error_description=\"the access token lacks a scope for this call\"",
            names(self.scopes),
            self.metadata
        );
        // The parts are ASCII: scopes are ours, and the resource was checked.
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use mcp::message::{Read, read};
    use policy::Scope;

    use super::*;

    fn lacking(held: &[Scope], call: Value) -> Option<String> {
        let Read::Message(message) = read(call.to_string().as_bytes()) else { panic!("no message") };
        let caller = Caller { scopes: Scopes::of(held), ..Caller::local() };
        let challenge = ScopeChallenge::new(&caller, "https://t.example/x".into());
        challenge.lacking(&message).map(|lacking| names(lacking.scopes))
    }

    fn call(name: &str, arguments: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn a_call_names_every_scope_that_it_needs_and_keeps_those_of_the_token() {
        let run = call("run", json!({"language": "python", "code": "1"}));
        let inside = call("run", json!({"language": "python", "code": "1", "sandbox_id": "x"}));
        assert_eq!(lacking(&[], run.clone()).as_deref(), Some("palisade:run"));
        assert_eq!(lacking(&[Scope::Run], run.clone()), None);
        assert_eq!(lacking(&[Scope::Sandbox], run), None);
        let both = Some("palisade:run palisade:sandbox");
        assert_eq!(lacking(&[Scope::Run], inside.clone()).as_deref(), both);
        assert_eq!(lacking(&[], inside.clone()).as_deref(), both);
        let kept = lacking(&[Scope::Audit], inside);
        assert_eq!(kept.as_deref(), Some("palisade:run palisade:sandbox palisade:audit"));
        assert_eq!(lacking(&[Scope::Run], call("sandbox_open", json!({}))).as_deref(), both);
    }

    #[test]
    fn every_request_about_a_task_needs_the_scope_of_runs() {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({"taskId": "x", "inputResponses": {}});
            let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            assert_eq!(lacking(&[], asked.clone()).as_deref(), Some("palisade:run"), "{method}");
            assert_eq!(lacking(&[Scope::Run], asked), None, "{method}");
        }
    }

    #[test]
    fn lists_and_unknown_tools_need_no_scope_here() {
        assert_eq!(lacking(&[], json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})), None);
        assert_eq!(lacking(&[], call("no_such_tool", json!({}))), None);
    }

    #[test]
    fn a_refused_token_is_told_apart_from_none() {
        let metadata = "https://t.example/.well-known/oauth-protected-resource/mcp";
        let none = unidentified(metadata, None);
        let expected = format!(
            "Bearer realm=\"palisade\", resource_metadata=\"{metadata}\", scope=\"palisade:run palisade:sandbox\""
        );
        assert_eq!(none, expected);
        let wrong = unidentified(metadata, Some("it is wrong"));
        assert_eq!(wrong, format!("{expected}, error=\"invalid_token\", error_description=\"it is wrong\""));
    }
}
