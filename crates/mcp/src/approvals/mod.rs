//! Calls that a human must approve, as a client sees them.
//!
//! ```text
//! not approved -> the policy asks the caller, and the client can show a form:
//!                   2026-07-28: the answer is `input_required`; the client repeats the call with the user's answer
//!                   older:      `elicitation/create` while the call waits
//!              -> otherwise the call waits up to 20 s for an operator, with progress
//! then: approved -> passes, once     denied -> `approval_denied`     neither -> `approval_required`
//! ```
//! A form proves little about a human: some clients accept empty forms by themselves. Only an explicit choice decides;
//! everything else leaves the question to the operator. A call that waits has had no effect and has no place among the
//! runs. It ends when its caller cancels or disconnects.

mod form;
pub(crate) mod nested;

use std::time::Duration;

use engine::{
    APPROVAL_REQUIRED, Admitted, Approval, ApprovalError, ApprovalId, ApprovalState, Approver, Choice,
    JudgedCall, RunError,
};
use policy::ApproveBy;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, InputRequests, InputRequiredResult, InputResponses, ProgressNotificationParam,
    RequestStateCodec, SealOptions,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::tools::{self, ToolCall};
use crate::{Server, given_up, is_modern};

/// How long a call waits for an operator. Clients give up after 60 s.
const HOLD: Duration = Duration::from_secs(20);
/// How long a call waits for the user of a client that shows a form.
const FORM_PATIENCE: Duration = Duration::from_secs(300);
/// Interval of progress notifications, for clients whose timeout is reset by them.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);
/// Progress of a call that waits stays below that of its run.
const PROGRESS_PER_MS: f64 = 1e-6;
/// The name of the form in answers.
const FORM: &str = "approval";

/// Why a call does not happen now.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    Refused(Box<RunError>),
    /// The client is to ask its user and repeat the call.
    NeedsInput(Box<InputRequiredResult>),
}

impl From<RunError> for NotAdmitted {
    fn from(error: RunError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl NotAdmitted {
    /// The answer to the call.
    pub(crate) fn into_response(self) -> CallToolResponse {
        match self {
            Self::Refused(error) => tools::refused(&error).into(),
            Self::NeedsInput(input) => (*input).into(),
        }
    }

    /// The refusal, where no client can be asked.
    pub(crate) fn into_error(self) -> RunError {
        match self {
            Self::Refused(error) => *error,
            Self::NeedsInput(_) => RunError::new(APPROVAL_REQUIRED, "the policy asks for an approval"),
        }
    }

    /// Whether a human has not decided.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code == APPROVAL_REQUIRED)
    }
}

/// What a client answered to the form of an earlier answer.
#[derive(Debug, Default)]
pub(crate) struct GivenInput {
    pub(crate) responses: Option<InputResponses>,
    pub(crate) state: Option<String>,
}

/// Who can be asked while a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    /// `None` if there is no MCP client.
    pub(crate) context: Option<&'a RequestContext<RoleServer>>,
    pub(crate) input: Option<&'a GivenInput>,
}

impl<'a> Client<'a> {
    /// A client of the control socket.
    pub(crate) const NONE: Self = Self { context: None, input: None };

    pub(crate) fn of(call: &ToolCall<'a>) -> Self {
        Self { context: Some(call.context), input: Some(call.input) }
    }

    fn can_show_forms(&self) -> bool {
        let Some(capabilities) = self.context.and_then(|context| context.client_capabilities()) else {
            return false;
        };
        // An empty capability means forms, as in the revision that introduced it.
        let is_able =
            |known: &rmcp::model::ElicitationCapability| known.form.is_some() || known.url.is_none();
        capabilities.elicitation.as_ref().is_some_and(is_able)
    }
}

/// Admits a call, after asking a human if the policy says so.
pub(crate) async fn admit(
    server: &Server,
    call: JudgedCall<'_>,
    starts: Starts,
    client: Client<'_>,
) -> Result<Admitted, NotAdmitted> {
    let error = match admit_now(server, call, starts).await {
        Ok(admitted) => return Ok(admitted),
        Err(error) => error,
    };
    let Some(id) = error.approval_id.clone().filter(|_| error.code == APPROVAL_REQUIRED) else {
        return Err(error.into());
    };
    let approvals = server.engine.gatekeeper().approvals();
    let (asked, arguments) = approvals.get(&id).await.map_err(|error| unusable(&error))?;
    let question = Question { server, asked: &asked, arguments: &arguments, client };
    question.ask(&error).await?;
    // Calls that waited for the same approval look one after the other, so that only the first uses it and the others do
    // not ask again.
    let _turn = server.approval_turn.lock().await;
    let (now, _) = approvals.get(&id).await.map_err(|error| unusable(&error))?;
    match now.state {
        ApprovalState::Approved | ApprovalState::Denied => Ok(admit_now(server, call, starts).await?),
        ApprovalState::Consumed => Err(used(&now).into()),
        ApprovalState::Pending | ApprovalState::Expired => Err(error.into()),
    }
}

/// Whether a call starts a run, which is counted with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    Run,
    Nothing,
}

async fn admit_now(server: &Server, call: JudgedCall<'_>, starts: Starts) -> Result<Admitted, RunError> {
    let gatekeeper = server.engine.gatekeeper();
    match starts {
        Starts::Run => gatekeeper.admit_run(call).await,
        Starts::Nothing => gatekeeper.admit(call).await,
    }
}

/// A question about one call.
struct Question<'q> {
    server: &'q Server,
    asked: &'q Approval,
    arguments: &'q Value,
    client: Client<'q>,
}

impl Question<'_> {
    /// Asks, and waits for a decision. An error ends the call.
    async fn ask(&self, refusal: &RunError) -> Result<(), NotAdmitted> {
        let asks_caller = self.asked.by == ApproveBy::Caller && self.client.can_show_forms();
        match self.client.context {
            Some(context) if asks_caller && is_modern(context) => {
                let codec = self.codec().await?;
                match self.given_answer(&codec) {
                    Some(answer) => self.take(form::choice(answer)).await,
                    None => Err(NotAdmitted::NeedsInput(Box::new(self.input_required(&codec)?))),
                }
            }
            context => {
                let shown = match context.filter(|_| asks_caller) {
                    Some(context) => self.elicit(context).await,
                    None => None,
                };
                self.wait(if shown.is_some() { FORM_PATIENCE } else { HOLD }, shown).await;
                Ok(())
            }
        }
        .map_err(|ended| match ended {
            // A form without a choice: the question stays with the operator.
            NotAdmitted::Refused(error) if error.code == APPROVAL_REQUIRED => refusal.clone().into(),
            other => other,
        })
    }

    /// Waits until there is a decision, the time is over, or the caller is gone.
    async fn wait(&self, patience: Duration, mut shown: Option<RequestHandle<RoleServer>>) {
        let approvals = self.server.engine.gatekeeper().approvals();
        let decided = approvals.until_decided(&self.asked.id, patience);
        let mut progress = Progress::new(self);
        tokio::pin!(decided);
        loop {
            tokio::select! {
                biased;
                () = self.gone() => break,
                _ = &mut decided => break,
                answer = answered(&mut shown) => {
                    // Without a choice the question stays with the operator.
                    self.take(form::choice(&answer)).await.ok();
                    shown = None;
                    break;
                }
                () = progress.tell() => {}
            }
        }
        if let Some(shown) = shown {
            // The client may be gone.
            shown.cancel(Some("the question is closed".to_owned())).await.ok();
        }
        progress.finish().await;
    }

    async fn gone(&self) {
        let given_up = async {
            match self.client.context {
                Some(context) => given_up(context).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = given_up => {}
            _ = self.server.ended() => {}
        }
    }

    /// Shows the form to the user of the client, as the older revisions do; `None` if that is not possible.
    async fn elicit(&self, context: &RequestContext<RoleServer>) -> Option<RequestHandle<RoleServer>> {
        let request = form::request(self.asked, self.arguments)?;
        let sent = context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        sent.inspect_err(|error| tracing::debug!(reason = %error, "elicitation_failed")).ok()
    }

    /// Takes the user's choice. Without one, the question stays with the operator.
    async fn take(&self, choice: Option<Choice>) -> Result<(), NotAdmitted> {
        let Some(choice) = choice else {
            return Err(RunError::new(APPROVAL_REQUIRED, "the form has no choice").into());
        };
        let approver = Approver::OfCall(self.asked.principal.clone());
        let gatekeeper = self.server.engine.gatekeeper();
        match gatekeeper.approvals().decide(&self.asked.id, choice, approver, None).await {
            Ok(decided) => {
                gatekeeper.audit().note(decided.decided_event());
                Ok(())
            }
            // Another approver may have decided meanwhile, which counts.
            Err(ApprovalError::Decided { .. }) => Ok(()),
            Err(error) => Err(unusable(&error).into()),
        }
    }

    async fn codec(&self) -> Result<RequestStateCodec, NotAdmitted> {
        let approvals = self.server.engine.gatekeeper().approvals();
        let key = approvals.seal_key().await.map_err(|error| unusable(&error))?;
        let failed = |_| RunError::new("store_failed", "the key of questions cannot be used");
        Ok(RequestStateCodec::try_new(key.to_vec()).map_err(failed)?)
    }

    /// The answer to this very question: its state was sealed by a server of this state directory, for this approval,
    /// caller, tool and arguments.
    fn given_answer(&self, codec: &RequestStateCodec) -> Option<&Value> {
        let GivenInput { responses, state } = self.client.input?;
        let opened = codec.open_with(state.as_deref()?, &self.asked.fingerprint).ok()?;
        let is_ours = opened == self.asked.id.as_str().as_bytes();
        responses.as_ref()?.get(FORM).filter(|_| is_ours)
    }

    fn input_required(&self, codec: &RequestStateCodec) -> Result<InputRequiredResult, NotAdmitted> {
        let unable = || RunError::new("internal", "the form cannot be made");
        let request = form::input_request(self.asked, self.arguments).ok_or_else(unable)?;
        let mut requests = InputRequests::new();
        requests.insert(FORM.to_owned(), request);
        let left_ms = self.asked.expires_ms.saturating_sub(self.asked.created_ms);
        let options =
            SealOptions::new().associated_data(&self.asked.fingerprint).ttl(Duration::from_millis(left_ms));
        let state = codec.seal_with(self.asked.id.as_str().as_bytes(), &options);
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }
}

/// The answer to a form that is shown. Never completes without one, or if the client cannot answer.
async fn answered(shown: &mut Option<RequestHandle<RoleServer>>) -> Value {
    if let Some(handle) = shown {
        match (&mut handle.rx).await {
            Ok(Ok(answer)) => return serde_json::to_value(answer).unwrap_or_default(),
            Ok(Err(error)) => tracing::debug!(reason = %error, "elicitation_failed"),
            Err(_) => tracing::debug!("elicitation_closed"),
        }
        *shown = None;
    }
    std::future::pending().await
}

/// Progress notifications of a call that waits.
struct Progress<'q> {
    context: Option<&'q RequestContext<RoleServer>>,
    id: &'q ApprovalId,
    began: Instant,
    next: Instant,
    on_its_way: Option<JoinHandle<()>>,
}

impl<'q> Progress<'q> {
    fn new(question: &'q Question<'_>) -> Self {
        let now = Instant::now();
        let context = question.client.context;
        Self { context, id: &question.asked.id, began: now, next: now, on_its_way: None }
    }

    /// Sends a notification when one is due. Never completes if the caller did not ask for progress.
    async fn tell(&mut self) {
        let token = self.context.and_then(|context| context.meta.get_progress_token());
        let (Some(context), Some(token)) = (self.context, token) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(self.next).await;
        if self.on_its_way.as_ref().is_some_and(|sending| !sending.is_finished()) {
            self.next = Instant::now() + PROGRESS_PAUSE;
            return;
        }
        self.next = Instant::now() + PROGRESS_PAUSE;
        let elapsed = self.began.elapsed();
        let progress = (elapsed.as_millis() + 1) as f64 * PROGRESS_PER_MS;
        let mut params = ProgressNotificationParam::new(token, progress);
        params.message = Some(format!("waiting for an approval ({})", self.id));
        let peer = context.peer.clone();
        // A client that does not read does not delay the decision.
        self.on_its_way = Some(tokio::spawn(async move { peer.notify_progress(params).await.unwrap_or(()) }));
    }

    /// Waits for the notification that is being sent, so that none arrives after the answer.
    async fn finish(&mut self) {
        if let Some(sending) = self.on_its_way.take() {
            sending.await.ok();
        }
    }
}

/// The answer to a call that waited for an approval that another call has used.
fn used(approval: &Approval) -> RunError {
    let message = "another call that is exactly the same used the approval first";
    let mut error = RunError::new(APPROVAL_REQUIRED, message)
        .remedy("nothing has happened by this call; make it again to ask for another approval");
    error.rule = Some(approval.rule.clone());
    error.retryable = true;
    error
}

fn unusable(error: &ApprovalError) -> RunError {
    tracing::error!(reason = %error, "approvals_failed");
    let mut told = RunError::new(error.code(), "the approvals of this server cannot be used now");
    told.retryable = true;
    told.remedy(error.remedy())
}
