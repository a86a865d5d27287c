//! Calls with an idempotency key: carried out once per caller, tool and key.
//!
//! The key is in `_meta` of the call, or in a header that the transport passes on as [`IdempotencyHeader`]. Programs send
//! it, models do not, so no schema names it. Tools that change nothing ignore it.

use engine::{ClaimEnd, IdempotencyKey, KeyedCall, Recalled, RunError, RunId};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject, MetaObject};
use rmcp::service::RequestContext;
use sandbox::Outcome;
use serde_json::{Value, json};

use crate::approvals::{Client, NotAdmitted};
use crate::arguments::{Refusal, refusal};
use crate::tools::{self, ToolCall, ToolEntry};
use crate::{extension, gate};

/// The key in `_meta` of a call.
pub const META_KEY: &str = "palisade/idempotency_key";
/// Marks an answer that was given before.
pub const REPLAYED_KEY: &str = "palisade/replayed";

/// The key that came in a header, put into a request's extensions by an HTTP transport. `None` if the header was sent
/// several times or is not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyHeader(pub Option<String>);

/// The key of a call, if it has one.
pub(crate) fn key(context: &RequestContext<RoleServer>) -> Result<Option<IdempotencyKey>, Refusal> {
    let header = extension::<IdempotencyHeader>(context).map(|header| header.0.as_deref());
    let meta = context.meta.0.get(META_KEY).map(Value::as_str);
    if let (Some(header), Some(meta)) = (header, meta)
        && header != meta
    {
        let message = format!("the header Idempotency-Key and _meta[\"{META_KEY}\"] differ");
        return Err(refusal(message, "send the key in one of the two places"));
    }
    let Some(text) = header.or(meta) else { return Ok(None) };
    let key = text.and_then(IdempotencyKey::parse);
    key.map(Some).ok_or_else(|| {
        let message = format!(
            "an idempotency key has 1 to {} visible ASCII characters",
            engine::IDEMPOTENCY_KEY_BYTES_MAX
        );
        refusal(message, "use a random UUID for each new call")
    })
}

/// Carries out a call with a key, or gives its answer again.
pub(crate) async fn call(
    entry: &'static ToolEntry,
    call: ToolCall<'_>,
    key: &IdempotencyKey,
) -> CallToolResponse {
    answer(entry, call, key).await.unwrap_or_else(NotAdmitted::into_response)
}

async fn answer(
    entry: &'static ToolEntry,
    mut call: ToolCall<'_>,
    key: &IdempotencyKey,
) -> Result<CallToolResponse, NotAdmitted> {
    let ToolCall { server, caller, .. } = call;
    let client = Client::of(&call);
    let given = Value::Object(call.given.clone());
    let arguments = gate::canonical(server, caller, entry, std::mem::take(&mut call.given)).await?;
    let keyed = KeyedCall::new(caller, entry.name, key, &given, &Value::Object(arguments.clone()));
    let gatekeeper = server.engine.gatekeeper();
    let patience = tools::patience_of(&arguments);
    loop {
        if let Some(known) = gatekeeper.recall(&keyed, patience).await? {
            gate::permit_again(server, caller, entry, &arguments)?;
            return Ok(replay(call, known).await);
        }
        // A call that policy denies, or that a human has to approve first, is not recorded.
        let judged = gate::judge(server, (caller, client), entry, arguments.clone()).await;
        let (admitted, arguments) = match judged {
            Ok(judged) => judged,
            Err(undecided) if undecided.is_undecided() => {
                // The same call with the key may have used the approval for which this one waited.
                return match gatekeeper.recall(&keyed, patience).await? {
                    Some(known) => Ok(replay(call, known).await),
                    None => Err(undecided),
                };
            }
            Err(error) => return Err(error),
        };
        let starts_run = [tools::run::NAME, tools::install::NAME].contains(&entry.name);
        let run_id = if starts_run { Some(RunId::random()?) } else { None };
        let claim = match gatekeeper.claim(keyed.clone(), run_id.as_ref()).await {
            Ok(Some(claim)) => claim,
            // Another call with the key was faster; this one waits for it.
            Ok(None) => {
                admitted.settle(Some(Outcome::Refused)).await;
                continue;
            }
            Err(error) => {
                admitted.settle(Some(Outcome::Unavailable)).await;
                return Err(error.into());
            }
        };
        let (decision, wall_lists) = (admitted.decision(), admitted.wall_lists());
        let response =
            (entry.call)(ToolCall { given: arguments, run_id, decision, wall_lists, ..call }).await;
        let outcome = gate::outcome(&response);
        admitted.settle(outcome).await;
        claim.end(end_of(&response, outcome)).await;
        return Ok(response);
    }
}

/// What is kept of an answer.
fn end_of(response: &CallToolResponse, outcome: Option<Outcome>) -> ClaimEnd {
    match (response, outcome) {
        (_, Some(Outcome::Refused | Outcome::Unavailable)) => ClaimEnd::NoEffect,
        (_, Some(Outcome::Running)) => ClaimEnd::OfRun,
        (CallToolResponse::Complete(result), _) => {
            serde_json::to_string(result).map_or(ClaimEnd::OfRun, ClaimEnd::Answer)
        }
        _ => ClaimEnd::OfRun,
    }
}

/// The answer of an earlier call. The answer of a run that was handed over is that of the run now.
async fn replay(call: ToolCall<'_>, known: Recalled) -> CallToolResponse {
    let response = match known {
        Recalled::Answer(text) => match serde_json::from_str::<CallToolResult>(&text) {
            Ok(result) => result.into(),
            Err(_) => tools::refused(&not_kept()).into(),
        },
        Recalled::Run(id) => match tools::find("wait") {
            Some(wait) => {
                let mut given = JsonObject::new();
                given.insert("run_id".to_owned(), json!(id.as_str()));
                let call = ToolCall { given, ..call };
                // A caller that may not see `wait` asks for what its own call is answered with.
                match call.server.engine.gatekeeper().conceals(call.caller, &[wait.name]) {
                    true => (wait.call)(call).await,
                    false => Box::pin(gate::call(wait, call)).await,
                }
            }
            None => tools::refused(&not_kept()).into(),
        },
        Recalled::Forgotten => tools::refused(&not_kept()).into(),
    };
    match response {
        CallToolResponse::Complete(mut result) => {
            let meta = result.meta.get_or_insert_with(MetaObject::default);
            meta.insert(REPLAYED_KEY.to_owned(), json!(true));
            result.into()
        }
        other => other,
    }
}

fn not_kept() -> RunError {
    RunError::new(
        "answer_not_kept",
        "the call was carried out before, and its answer was too large to be kept",
    )
    .remedy("see what the first call left behind; it is not carried out again")
}
