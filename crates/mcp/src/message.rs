//! Reads one JSON-RPC message from its bytes, before the library sees it. Every transport uses it, so the same
//! mistake gets the same answer over stdio, WebSocket and HTTP.
//!
//! ```text
//! bytes -> JSON? -> JSON-RPC? -> parameters of a known method? -> message
//!          -32700   -32600       -32602
//! ```
//! The library answers "method not found" to a known method whose parameters do not fit, and cannot name the
//! id of a message that it does not understand. A call of a tool whose `arguments` are not an object still
//! reaches the tool, because only a tool's result is shown to a model ([`IllTypedArguments`]).

use std::fmt;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CancelTaskRequest, ClientRequest, CompleteRequest,
    DiscoverRequest, ErrorData, GetPromptRequest, GetTaskRequest, InitializeRequest, JsonRpcMessage,
    JsonRpcRequest, JsonRpcVersion2_0, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, ListToolsRequest, PingRequest, ReadResourceRequest, RequestId,
    SubscriptionsListenRequest, UpdateTaskRequest,
};
use rmcp::service::RxJsonRpcMessage;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};

use crate::arguments::BAD_ARGUMENTS;
use crate::recover_request_id::{self, END_BYTES};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const CALL: &str = "tools/call";
/// The key of the object as which serde_json presents a number that is no 64-bit integer.
const NUMBER_KEY: &str = "$serde_json::private::Number";
/// Number of characters of a parser's reason that an error repeats; the reason can quote the message.
const REASON_CHARS_MAX: usize = 200;

/// A message of a client.
pub type Incoming = RxJsonRpcMessage<RoleServer>;

/// The outcome of reading a message.
#[derive(Debug)]
pub enum Read {
    /// A message that the library understands as it is.
    Message(Box<Incoming>),
    /// A call of a tool, repaired so that the library understands it.
    Repaired(Repaired),
    /// A message that must be answered with an error.
    Refused(RefusedMessage),
    /// Only white space.
    Nothing,
    /// A notification that cannot be used. JSON-RPC does not answer notifications.
    Ignored,
}

/// A call whose `arguments` were not an object.
#[derive(Debug)]
pub struct Repaired {
    /// The call with an object in their place.
    pub text: Vec<u8>,
    /// Set unless the arguments were an object in the form of a string. The request must carry it as an
    /// extension.
    pub complaint: Option<IllTypedArguments>,
}

/// An extension of a request: its `arguments` were not an object, so the tool must refuse the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllTypedArguments(pub(crate) &'static str);

/// The error for a message, and the message's id if it is known.
#[derive(Debug)]
pub struct RefusedMessage {
    /// The id of the request.
    pub id: Option<RequestId>,
    /// The reason.
    pub error: ErrorData,
}

impl RefusedMessage {
    /// The answer. An unknown id is null (JSON-RPC 2.0, section 5).
    pub fn answer(&self) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id, "error": self.error })
    }
}

/// The message without white space and a byte order mark around it, which the library does not accept.
pub fn trimmed(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii()
}

/// Reads a message.
pub fn read(bytes: &[u8]) -> Read {
    let text = trimmed(bytes);
    if text.is_empty() {
        return Read::Nothing;
    }
    if let Some(message) = parse_call(text) {
        return Read::Message(Box::new(message));
    }
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(fields)) => judge(text, fields),
        Ok(Value::Array(_)) => {
            let reason = "a batch of messages is not supported: send every message alone";
            refused(None, ErrorData::invalid_request(reason, None))
        }
        Ok(_) => refused(None, ErrorData::invalid_request("the message is not a JSON object", None)),
        Err(error) => {
            let head = &text[..text.len().min(END_BYTES)];
            let reason = format!("the message is not JSON: {}", shortened(&error));
            let id = recover_request_id::request_id(head, None);
            refused(id, ErrorData::parse_error(reason, None))
        }
    }
}

fn refused(id: Option<RequestId>, error: ErrorData) -> Read {
    Read::Refused(RefusedMessage { id, error })
}

/// Reads an object: is it JSON-RPC, and does the library understand it?
fn judge(text: &[u8], fields: Map<String, Value>) -> Read {
    let invalid = |id, reason: &'static str| refused(id, ErrorData::invalid_request(reason, None));
    // An error without a known request has no id.
    let is_error = fields.contains_key("error") && !fields.contains_key("method");
    let id = match fields.get("id") {
        None => None,
        Some(Value::Null) if is_error => None,
        Some(id) => match serde_json::from_value::<RequestId>(id.clone()) {
            Ok(id) => Some(id),
            Err(_) => return invalid(None, "`id` must be a string or a 64-bit integer"),
        },
    };
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid(id, "`jsonrpc` must be \"2.0\"");
    }
    let method = match fields.get("method") {
        Some(Value::String(method)) => Some(method.clone()),
        Some(_) => return invalid(id, "`method` must be a string"),
        None if is_error || fields.contains_key("result") => None,
        None => return invalid(id, "the message has neither `method` nor `result` nor `error`"),
    };
    match (method.as_deref(), &id) {
        (Some(CALL), Some(_)) => call(text, fields, id),
        (method, _) => understood(text, method, id),
    }
}

/// Lets the library read a message. It takes a known method with wrong parameters for an unknown method.
fn understood(text: &[u8], method: Option<&str>, id: Option<RequestId>) -> Read {
    let read = serde_json::from_slice::<Incoming>(text);
    let is_strange = match &read {
        Ok(JsonRpcMessage::Request(asked)) => matches!(asked.request, ClientRequest::CustomRequest(_)),
        Ok(_) => false,
        Err(_) => id.is_some(),
    };
    if let Some(method) = method.filter(|_| is_strange)
        && let Some(reason) = misfit(method, text)
    {
        let reason = format!("the parameters of {method} do not fit: {reason}");
        return refused(id, ErrorData::invalid_params(reason, None));
    }
    match read {
        Ok(message) => Read::Message(Box::new(message)),
        Err(_) if id.is_none() && method.is_some() => Read::Ignored,
        Err(_) => {
            let reason = "the message is not a valid MCP message";
            refused(id, ErrorData::invalid_request(reason, None))
        }
    }
}

/// Reads a call of a tool that [`parse_call`] did not accept.
fn call(text: &[u8], mut fields: Map<String, Value>, id: Option<RequestId>) -> Read {
    let Some(Value::Object(params)) = fields.get_mut("params") else {
        return no_tool(id, "`params` must be an object with `name` and `arguments`");
    };
    match params.get("name") {
        Some(Value::String(_)) => {}
        Some(_) => return no_tool(id, "`name` of the tool must be a string"),
        None => return no_tool(id, "`name` of the tool is missing"),
    }
    let (object, complaint) = match params.get("arguments") {
        None | Some(Value::Null | Value::Object(_)) => return understood(text, Some(CALL), id),
        // A common mistake of models: the object in the form of a string.
        Some(Value::String(inner)) => match serde_json::from_str(inner) {
            Ok(Value::Object(object)) => (object, None),
            _ => (Map::new(), Some(IllTypedArguments("a string that is no JSON object"))),
        },
        Some(Value::Array(_)) => (Map::new(), Some(IllTypedArguments("an array"))),
        Some(Value::Number(_)) => (Map::new(), Some(IllTypedArguments("a number"))),
        Some(Value::Bool(_)) => (Map::new(), Some(IllTypedArguments("a boolean"))),
    };
    params.insert("arguments".to_owned(), Value::Object(object));
    let text = Value::Object(fields).to_string().into_bytes();
    match understood(&text, Some(CALL), id) {
        Read::Message(_) => Read::Repaired(Repaired { text, complaint }),
        refused => refused,
    }
}

/// The error for a call that names no tool. No tool can answer it, so it is a protocol error.
fn no_tool(id: Option<RequestId>, reason: &str) -> Read {
    let remedy =
        "send params {\"name\": \"run\", \"arguments\": {...}}; tools/list has the names of the tools";
    let data = json!({ "code": BAD_ARGUMENTS, "remedy": remedy });
    refused(id, ErrorData::invalid_params(format!("{reason}: {remedy}"), Some(data)))
}

/// Why the library does not understand a method of this server; `None` for any other method.
fn misfit(method: &str, text: &[u8]) -> Option<String> {
    fn of<T: DeserializeOwned>(text: &[u8]) -> Option<String> {
        serde_json::from_slice::<T>(text).err().map(|error| shortened(&error))
    }
    let reason = match method {
        "ping" => of::<PingRequest>(text),
        // The newer revisions do not have this method: there it is unknown.
        "initialize" if names_its_revision(text) => return None,
        "initialize" => of::<InitializeRequest>(text),
        "server/discover" => of::<DiscoverRequest>(text),
        "completion/complete" => of::<CompleteRequest>(text),
        "prompts/get" => of::<GetPromptRequest>(text),
        "prompts/list" => of::<ListPromptsRequest>(text),
        "resources/list" => of::<ListResourcesRequest>(text),
        "resources/templates/list" => of::<ListResourceTemplatesRequest>(text),
        "resources/read" => of::<ReadResourceRequest>(text),
        "subscriptions/listen" => of::<SubscriptionsListenRequest>(text),
        CALL => of::<CallToolRequest>(text),
        "tools/list" => of::<ListToolsRequest>(text),
        "tasks/get" => of::<GetTaskRequest>(text),
        "tasks/update" => of::<UpdateTaskRequest>(text),
        "tasks/cancel" => of::<CancelTaskRequest>(text),
        _ => return None,
    };
    Some(reason.unwrap_or_else(|| "see the schema of the method".to_owned()))
}

/// Whether the parameters of a message state a revision of the protocol in `_meta`, as those of the newer revisions do.
fn names_its_revision(text: &[u8]) -> bool {
    let message = serde_json::from_slice::<Value>(text).unwrap_or_default();
    let meta = message["params"]["_meta"].as_object();
    meta.is_some_and(|meta| meta.keys().any(|key| key.ends_with("/protocolVersion")))
}

fn shortened(error: &impl fmt::Display) -> String {
    error.to_string().chars().take(REASON_CHARS_MAX).collect()
}

/// Parses the most latency-sensitive message, a tool call without unusual parts. The library first tries
/// every other kind of message, which takes ten times as long.
fn parse_call(line: &[u8]) -> Option<Incoming> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RawCall {
        jsonrpc: JsonRpcVersion2_0,
        id: RequestId,
        #[serde(rename = "method")]
        _method: CallToolRequestMethod,
        #[serde(rename = "params")]
        _params: IgnoredAny,
    }
    let RawCall { jsonrpc, id, .. } = serde_json::from_slice(line).ok()?;
    let call = serde_json::from_slice::<CallToolRequest>(line).ok()?;
    if call.params.arguments.as_ref().is_some_and(|given| given.contains_key(NUMBER_KEY)) {
        return None;
    }
    let request = ClientRequest::CallToolRequest(call);
    Some(JsonRpcMessage::Request(JsonRpcRequest { jsonrpc, id, request }))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
