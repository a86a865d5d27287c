//! The scope that a message needs, for transports that must refuse it before an answer begins. The engine judges every
//! call again.

use policy::Scope;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};

use crate::message::Incoming;
use crate::tools::scope_needed;

/// The id of a request and the scope that it needs; `None` if it needs none, or is no request.
pub fn scope_of_message(message: &Incoming) -> Option<(RequestId, Scope)> {
    let JsonRpcMessage::Request(asked) = message else { return None };
    let scope = match &asked.request {
        ClientRequest::CallToolRequest(call) => scope_needed(
            &call.params.name,
            call.params.arguments.as_ref().unwrap_or(&serde_json::Map::new()),
        )?,
        ClientRequest::GetTaskRequest(_)
        | ClientRequest::UpdateTaskRequest(_)
        | ClientRequest::CancelTaskRequest(_) => Scope::Run,
        _ => return None,
    };
    Some((asked.id.clone(), scope))
}
