//! One call of a tool: granted, within the budgets, allowed by the rules, the labels and a human, then sent once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::links::RunPause;
use engine::{
    APPROVAL_REQUIRED, Admitted, ApprovalId, ApprovalState, JudgedCall, NESTED_APPROVAL_PATIENCE, NO_HANDLE,
    RunError,
};
use sandbox::Outcome;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::CALL_PATIENCE;
use super::session::{Pending, Session, names_of};
use crate::{
    Effect, ResourceRead, ServerInfo, ToolAccess, ToolAnswer, ToolCall, ToolError, ToolErrorCode, ToolName,
    ToolStanding, Viewer,
};

/// How much longer than its deadline a host may take to say that a call is over.
const HOST_PATIENCE: Duration = Duration::from_secs(2);
/// The name under which a read of a resource is judged, behind that of its server.
const READ: &str = "read";

/// Why a request has no result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) remedy: Option<String>,
    pub(super) approval_id: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) may_have_run: bool,
    /// Whether rules, budgets or a human denied it.
    pub(super) is_denial: bool,
}

impl CallError {
    pub(super) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }

    pub(super) fn denied(code: &str, message: impl Into<String>) -> Self {
        Self { is_denial: true, ..Self::failed(code, message) }
    }

    /// A line that is no request.
    pub(super) fn bad(message: &str) -> Self {
        Self::failed("bad_request", message)
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        self
    }

    /// As programs get it.
    pub(super) fn to_json(&self, tool: Option<(&str, &str)>) -> Value {
        let mut told = json!({ "code": self.code, "message": self.message });
        if let Some((server, tool)) = tool {
            (told["server"], told["tool"]) = (server.into(), tool.into());
        }
        if let Some(remedy) = &self.remedy {
            told["remedy"] = remedy.as_str().into();
        }
        if let Some(id) = &self.approval_id {
            told["approval_id"] = id.as_str().into();
        }
        if let Some(wait) = self.retry_after_ms {
            told["retry_after_ms"] = wait.into();
        }
        if self.may_have_run {
            told["may_have_run"] = true.into();
        }
        told
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        let is_denial = matches!(error.code, ToolErrorCode::ToolDenied | ToolErrorCode::ToolHeld);
        let told = Self::failed(error.code.name(), error.message).remedy(error.remedy);
        Self { may_have_run: error.may_have_run, is_denial, ..told }
    }
}

impl From<RunError> for CallError {
    fn from(error: RunError) -> Self {
        Self {
            approval_id: error.approval_id.as_ref().map(ApprovalId::to_string),
            retry_after_ms: error.retry_after_ms,
            remedy: error.remedy,
            ..Self::denied(&error.code, error.message)
        }
    }
}

/// A call as a program asks for it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) timeout_ms: Option<u64>,
}

/// What stops a call, and the clock that stands still while it waits for a human.
pub(super) struct CallTies {
    pub(super) cancel: CancellationToken,
    pub(super) pause: Arc<RunPause>,
}

impl Session {
    /// Makes a call. The answer is counted; a denial too.
    pub(super) async fn call(
        &self,
        wanted: Wanted,
        ties: &CallTies,
    ) -> (Option<Pending<'_>>, Result<Value, CallError>) {
        let name = format!("{}.{}", wanted.server, wanted.tool);
        let begun = self.server(&wanted.server).and_then(|_| self.begin(&name));
        let pending = match begun {
            Ok(pending) => pending,
            Err(error) => {
                self.count_denied();
                return (None, Err(error));
            }
        };
        let called = self.judged_call(wanted, ties, &pending).await;
        if called.as_ref().is_err_and(|error| error.is_denial) {
            self.count_denied();
        }
        (Some(pending), called)
    }

    async fn judged_call(
        &self,
        wanted: Wanted,
        ties: &CallTies,
        pending: &Pending<'_>,
    ) -> Result<Value, CallError> {
        let Wanted { server, tool, arguments, timeout_ms } = wanted;
        let server = self.server(&server)?;
        let standing = unless(&ties.cancel, async {
            match self.shared.host.standing(&self.caller.principal, server, &tool).await {
                Ok(standing) => Ok(standing),
                Err(error) => Err(self.server_failed((server, pending.name()), error).await),
            }
        });
        let standing = standing.await?;
        // Of a tool that is hidden, nothing but its judgement is told.
        if !self.is_hidden(&names_of(&standing.server, &standing.tool, &standing.alias)) {
            self.check_labels(&standing)?;
        }
        let arguments = Value::Object(arguments);
        let admitted = unless(&ties.cancel, self.admit(&standing, &arguments, (ties, pending))).await?;
        // A human may have taken long: what the run has read meanwhile counts.
        if let Err(barred) = self.check_labels(&standing) {
            admitted.settle(Some(Outcome::Refused)).await;
            return Err(barred);
        }
        let Value::Object(arguments) = arguments else {
            return Err(CallError::bad("`args` must be an object"));
        };
        let sent = self.send(&standing, arguments, (timeout_ms, ties)).await;
        let outcome = match &sent {
            Ok(answer) if answer.is_error() => Outcome::Failed,
            Ok(_) => Outcome::Completed,
            Err(error) if error.may_have_run => Outcome::Failed,
            Err(_) => Outcome::Unavailable,
        };
        admitted.settle(Some(outcome)).await;
        if outcome != Outcome::Completed {
            self.count_failed();
        }
        self.labelled(sent, &standing).await
    }

    /// What the program gets of an answer. The run is marked first: an error, too, may be told in the server's own words.
    /// An answer that the program does not get is of a call that had its effect.
    async fn labelled(
        &self,
        sent: Result<ToolAnswer, CallError>,
        standing: &ToolStanding,
    ) -> Result<Value, CallError> {
        let may_have_run = sent.as_ref().map_or_else(|error| error.may_have_run, |_| true);
        let withheld = |error: CallError| CallError { may_have_run, is_denial: false, ..error };
        let of_answer = sent.iter().flat_map(|answer| &answer.labels);
        self.mark(of_answer.chain(&standing.labels).cloned().collect()).await.map_err(withheld)?;
        let answer = sent?;
        self.count_bytes(answer.bytes).map_err(withheld)?;
        Ok(Value::Object(answer.result))
    }

    /// The error of a server that could not be asked about a tool, by the name as the program spelled it. What it said
    /// last may be in it.
    pub(super) async fn server_failed(&self, (server, name): (&str, &str), error: ToolError) -> CallError {
        if error.code == ToolErrorCode::UnknownTool {
            // As for a tool that a policy hides, and without near names, which may be hidden.
            return unknown_tool(name);
        }
        // These are Palisade's own words about names.
        let is_own = error.code == ToolErrorCode::UnknownServer;
        if !is_own && let Err(unkept) = self.mark(self.labels_of(|info| info.name == server)).await {
            return unkept;
        }
        error.into()
    }

    /// The labels of the servers that are meant.
    pub(super) fn labels_of(&self, is_meant: impl Fn(&ServerInfo) -> bool) -> BTreeSet<String> {
        let servers = self.shared.host.servers(Viewer::of(&self.caller.principal));
        servers.into_iter().filter(is_meant).flat_map(|info| info.labels).collect()
    }

    fn check_labels(&self, standing: &ToolStanding) -> Result<(), CallError> {
        let Some(label) = self.barred_by(&standing.refuses) else { return Ok(()) };
        let ToolStanding { server, .. } = standing;
        let message = format!("this run has read what is marked `{label}`, which `{server}` must not get");
        let remedy = "make this call in a fresh run that does not read it";
        Err(CallError::denied("label_refused", message).remedy(remedy))
    }

    /// Has the call judged. Where a human must allow it, waits for the answer; nothing is replayed.
    async fn admit(
        &self,
        standing: &ToolStanding,
        arguments: &Value,
        (ties, pending): (&CallTies, &Pending<'_>),
    ) -> Result<Admitted, CallError> {
        let names = names_of(&standing.server, &standing.tool, &standing.alias);
        let name = &format!("{}.{}", standing.server, standing.tool);
        let judged_names: Vec<&str> = names.iter().map(String::as_str).collect();
        let asks = match standing.access {
            _ if self.is_hidden(&names) => None,
            ToolAccess::Allow => None,
            ToolAccess::Ask => Some(format!("{name} may change something ({})", standing.effect.name())),
            ToolAccess::Deny => {
                return Err(CallError::denied("tool_denied", format!("the operator denies {name}")));
            }
            ToolAccess::Held => {
                let message = format!("the definition of {name} is new or has changed");
                let remedy = format!("ask the operator: `palisade tools diff {}`", standing.server);
                return Err(CallError::denied("tool_held", message).remedy(remedy));
            }
        };
        let gatekeeper = &self.shared.gatekeeper;
        let began = Instant::now();
        loop {
            let judged = JudgedCall { caller: &self.caller, names: &judged_names, arguments };
            let refused = match gatekeeper.admit_nested(judged, asks.clone()).await {
                Ok(admitted) => return Ok(admitted),
                // It is recorded, and the answer is that for a tool that does not exist.
                Err(_) if self.is_hidden(&names) => return Err(unknown_tool(pending.name())),
                Err(refused) => refused,
            };
            let Some(id) = refused.approval_id.clone().filter(|_| refused.code == APPROVAL_REQUIRED) else {
                return Err(refused.into());
            };
            let left = NESTED_APPROVAL_PATIENCE.saturating_sub(began.elapsed());
            let held = ties.pause.hold();
            let open = gatekeeper.open_question(self.run_id.as_deref().unwrap_or(NO_HANDLE), &id);
            pending.waits_for(Some(&format!("waits for approval {id}")));
            let decided = gatekeeper.approvals().until_decided(&id, left).await;
            pending.waits_for(None);
            drop((open, held));
            match decided {
                Ok(approval) if approval.state != ApprovalState::Pending => {}
                Ok(_) => {
                    let message = "no human has answered the question about this call";
                    let error = CallError::denied("approval_unanswered", message);
                    return Err(CallError { approval_id: Some(id.to_string()), ..error });
                }
                Err(error) => {
                    return Err(CallError::failed(error.code(), "the approvals cannot be used now"));
                }
            }
        }
    }

    /// Sends a call that may happen.
    async fn send(
        &self,
        standing: &ToolStanding,
        arguments: Map<String, Value>,
        (timeout_ms, ties): (Option<u64>, &CallTies),
    ) -> Result<ToolAnswer, CallError> {
        let ToolStanding { server, tool, digest, .. } = standing;
        let _places = unless(&ties.cancel, self.take_places(server)).await?;
        let answer_bytes_max = self.room()?;
        let patience = timeout_ms.map_or(CALL_PATIENCE, |ms| Duration::from_millis(ms).min(CALL_PATIENCE));
        let deadline = Instant::now() + patience;
        let call = ToolCall {
            principal: &self.caller.principal,
            server,
            tool: ToolName::Judged { own: tool, digest },
            arguments,
            deadline,
            cancel: ties.cancel.clone(),
            answer_bytes_max,
            // All runs see what was learned.
            is_learned_from: standing.labels.is_empty() && self.labels().is_empty(),
        };
        self.count_sent(server);
        in_time(patience, self.shared.host.call(call)).await
    }

    /// Reads a resource. It counts as a call, and is judged by the name `server.read`.
    pub(super) async fn read(
        &self,
        (server, uri): (&str, &str),
        ties: &CallTies,
    ) -> (Option<Pending<'_>>, Result<Value, CallError>) {
        let begun =
            self.server(server).and_then(|server| Ok((server, self.begin(&format!("{server}.{READ}"))?)));
        let (server, pending) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.count_denied();
                return (None, Err(error));
            }
        };
        let read = self.judged_read((server, uri), ties, &pending).await;
        if read.as_ref().is_err_and(|error| error.is_denial) {
            self.count_denied();
        }
        (Some(pending), read)
    }

    async fn judged_read(
        &self,
        (server, uri): (&str, &str),
        ties: &CallTies,
        pending: &Pending<'_>,
    ) -> Result<Value, CallError> {
        let standing = self.standing_of_reads(server);
        self.check_labels(&standing)?;
        let arguments = json!({ "uri": uri });
        let admitted = unless(&ties.cancel, self.admit(&standing, &arguments, (ties, pending))).await?;
        let sent = match self.check_labels(&standing) {
            Ok(()) => self.send_read(server, uri, ties).await,
            barred => {
                admitted.settle(Some(Outcome::Refused)).await;
                return barred.map(|()| Value::Null);
            }
        };
        let outcome = match &sent {
            Ok(_) => Outcome::Completed,
            Err(error) if error.may_have_run => Outcome::Failed,
            Err(_) => Outcome::Unavailable,
        };
        admitted.settle(Some(outcome)).await;
        let sent = sent.inspect_err(|_| self.count_failed());
        self.labelled(sent, &standing).await
    }

    /// What holds for reads of resources: the labels of the server. Only policies deny them or ask about them.
    fn standing_of_reads(&self, server: &str) -> ToolStanding {
        let servers = self.shared.host.servers(Viewer::of(&self.caller.principal));
        let info = servers.into_iter().find(|info| info.name == server);
        let (labels, refuses) = info.map(|info| (info.labels, info.refuses)).unwrap_or_default();
        ToolStanding {
            server: server.to_owned(),
            tool: READ.to_owned(),
            alias: READ.to_owned(),
            effect: Effect::Read,
            access: ToolAccess::Allow,
            labels,
            refuses,
            digest: String::new(),
        }
    }

    async fn send_read(&self, server: &str, uri: &str, ties: &CallTies) -> Result<ToolAnswer, CallError> {
        let _places = unless(&ties.cancel, self.take_places(server)).await?;
        let answer_bytes_max = self.room()?;
        let read = ResourceRead {
            principal: &self.caller.principal,
            server,
            uri,
            deadline: Instant::now() + CALL_PATIENCE,
            cancel: ties.cancel.clone(),
            answer_bytes_max,
        };
        self.count_sent(server);
        in_time(CALL_PATIENCE, self.shared.host.read(read)).await
    }

    async fn take_places(&self, server: &str) -> Result<impl Sized + use<'_>, CallError> {
        let closed = |_| CallError::failed("no_run", "the run has ended");
        // First at the server: a call that waits there does not keep others from other servers.
        let at_server = match self.places(server) {
            Some(places) => Some(places.acquire().await.map_err(closed)?),
            None => None,
        };
        let in_run = self.in_flight.acquire().await.map_err(closed)?;
        Ok((at_server, in_run))
    }
}

/// The answer for a tool that does not exist, or that a policy hides from the caller.
pub(super) fn unknown_tool(name: &str) -> CallError {
    CallError::failed("unknown_tool", format!("there is no tool `{}`", name.escape_debug()))
}

/// The work, unless the call is cancelled first.
async fn unless<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(CallError::failed("cancelled", "the call was cancelled")),
        done = work => done,
    }
}

/// The answer of a host, which keeps to the deadline itself.
async fn in_time(
    patience: Duration,
    call: impl Future<Output = Result<ToolAnswer, ToolError>>,
) -> Result<ToolAnswer, CallError> {
    match tokio::time::timeout(patience + HOST_PATIENCE, call).await {
        Ok(answered) => answered.map_err(CallError::from),
        Err(_) => {
            let error = CallError::failed("timed_out", "the server did not answer in time");
            Err(CallError { may_have_run: true, ..error })
        }
    }
}
