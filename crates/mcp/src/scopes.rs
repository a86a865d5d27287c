//! The scopes that a message needs, for transports that must refuse it before an answer begins. The engine judges every
//! call again.

use policy::{Scope, Scopes};
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};

use crate::message::Incoming;
use crate::tools::scopes_needed;

/// The id of a request and the scopes that it needs; `None` if it needs none, or is no request.
pub fn scopes_of_message(message: &Incoming) -> Option<(RequestId, Scopes)> {
    let JsonRpcMessage::Request(asked) = message else { return None };
    let scopes = match &asked.request {
        ClientRequest::CallToolRequest(call) => scopes_needed(
            &call.params.name,
            call.params.arguments.as_ref().unwrap_or(&serde_json::Map::new()),
        )?,
        ClientRequest::GetTaskRequest(_)
        | ClientRequest::UpdateTaskRequest(_)
        | ClientRequest::CancelTaskRequest(_) => Scopes::of(&[Scope::Run]),
        _ => return None,
    };
    Some((asked.id.clone(), scopes))
}
