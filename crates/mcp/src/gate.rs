//! Brings a call before the gatekeeper: the arguments that are judged are those that are carried out.

use engine::{Admitted, Caller, JudgedCall, RunError};
use rmcp::model::{CallToolResponse, JsonObject};
use sandbox::Outcome;
use serde_json::Value;

use crate::approvals::{Client, NotAdmitted, Starts};
use crate::tools::{self, ToolCall, ToolEntry};
use crate::{Server, approvals, code_packages, doors};

/// Carries out a call if it is admitted.
pub(crate) async fn call(entry: &ToolEntry, mut call: ToolCall<'_>) -> CallToolResponse {
    let client = Client::of(&call);
    match admit(call.server, (call.caller, client), entry, std::mem::take(&mut call.given)).await {
        Err(not_admitted) => not_admitted.into_response(),
        Ok((admitted, given)) => {
            let (decision, wall_lists) = (admitted.decision(), admitted.wall_lists());
            let response = (entry.call)(ToolCall { given, decision, wall_lists, ..call }).await;
            admitted.settle(outcome(&response)).await;
            response
        }
    }
}

/// Admits a call with its arguments in their final form.
pub(crate) async fn admit(
    server: &Server,
    (caller, client): (&Caller, Client<'_>),
    entry: &ToolEntry,
    given: JsonObject,
) -> Result<(Admitted, JsonObject), NotAdmitted> {
    let given = canonical(server, caller, entry, given).await?;
    judge(server, (caller, client), entry, given).await
}

/// The arguments in their final form: the sandbox by its id, the language by its own name, and the packages that the code
/// asks for. Otherwise a rule about `bash` could be avoided by writing `sh`.
pub(crate) async fn canonical(
    server: &Server,
    caller: &Caller,
    entry: &ToolEntry,
    mut given: JsonObject,
) -> Result<JsonObject, RunError> {
    doors::canonical(&mut given);
    tools::resolve_sandbox(server, caller, entry, &mut given).await?;
    code_packages::add(server, caller, entry, &mut given).await?;
    Ok(given)
}

/// Admits a call whose arguments are in their final form.
pub(crate) async fn judge(
    server: &Server,
    (caller, client): (&Caller, Client<'_>),
    entry: &ToolEntry,
    given: JsonObject,
) -> Result<(Admitted, JsonObject), NotAdmitted> {
    let arguments = Value::Object(given);
    let judged = doors::as_judged(&arguments);
    let call = JudgedCall { caller, names: &[entry.name], arguments: judged.as_ref().unwrap_or(&arguments) };
    let starts = if entry.name == tools::run::NAME { Starts::Run } else { Starts::Nothing };
    let admitted = approvals::admit(server, call, starts, client).await?;
    match arguments {
        Value::Object(given) => Ok((admitted, given)),
        _ => Ok((admitted, JsonObject::new())),
    }
}

/// Refuses to answer a call again that policy denies now.
pub(crate) fn permit_again(
    server: &Server,
    caller: &Caller,
    entry: &ToolEntry,
    given: &JsonObject,
) -> Result<(), RunError> {
    let arguments = Value::Object(given.clone());
    let judged = doors::as_judged(&arguments);
    let call = JudgedCall { caller, names: &[entry.name], arguments: judged.as_ref().unwrap_or(&arguments) };
    server.engine.gatekeeper().permit_again(call)
}

/// The code of a run whose inputs could not be unpacked: it did not begin, but its other files are in the sandbox.
const UNPACK_FAILED: &str = "unpack_failed";

/// The outcome of a call that has ended.
pub(crate) fn outcome(response: &CallToolResponse) -> Option<Outcome> {
    let CallToolResponse::Complete(result) = response else { return None };
    let content = result.structured_content.as_ref()?;
    if content.pointer("/error/code").and_then(Value::as_str) == Some(UNPACK_FAILED) {
        return None;
    }
    let name = content.get("outcome")?.as_str()?;
    Outcome::ALL.into_iter().find(|outcome| outcome.name() == name)
}
