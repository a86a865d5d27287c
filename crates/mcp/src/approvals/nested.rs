//! Questions about calls that the program of a run makes of other servers' tools, put to the client that waits for the run.
//!
//! ```text
//! older:      `elicitation/create` while the request waits, one question at a time
//! 2026-07-28: the answer to the request is `input_required`; the repeated request is a `wait` for the same run
//! ```
//! Nothing is replayed: the program waits, and the answer decides about its one call. A question that the client leaves
//! open stays with the operator.

use std::pin::Pin;

use engine::{Approval, ApprovalId, ApprovalState, Caller, RunId};
use policy::ApproveBy;
use rmcp::RoleServer;
use rmcp::model::{InputRequests, InputRequiredResult, RequestStateCodec, SealOptions};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Client, FORM, FORM_PATIENCE, GivenInput, Question, answered, form};
use crate::{Server, is_modern};

/// A question that the client of the newer era is to answer.
#[derive(Debug)]
pub(crate) struct NestedQuestion {
    asked: Approval,
    arguments: Value,
}

/// What a client answered, and to which question.
#[derive(Debug)]
pub(crate) struct NestedAnswer {
    pub(crate) run: RunId,
    pub(crate) id: ApprovalId,
    answer: Option<Value>,
}

type Form<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The questions of one run, for one request that waits for it.
pub(crate) struct RunQuestions<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    run: RunId,
    changes: watch::Receiver<u64>,
    /// Those that this client has seen.
    put: Vec<ApprovalId>,
    shown: Option<Form<'a>>,
    closing: CancellationToken,
}

impl<'a> RunQuestions<'a> {
    /// `None` for a client that cannot show forms. `can_return` says whether the caller may ask about the run again, which
    /// the newer era needs.
    pub(crate) fn new(
        server: &'a Server,
        context: &'a RequestContext<RoleServer>,
        run: &RunId,
        can_return: bool,
    ) -> Option<Self> {
        let is_able = Client { context: Some(context), input: None }.can_show_forms();
        let mut changes = server.engine.gatekeeper().question_changes();
        // Questions may be open already.
        changes.mark_changed();
        (is_able && (can_return || !is_modern(context))).then(|| Self {
            server,
            context,
            run: run.clone(),
            changes,
            put: Vec::new(),
            shown: None,
            closing: CancellationToken::new(),
        })
    }

    /// Leaves a question to the operator.
    pub(crate) fn pass_over(&mut self, id: ApprovalId) {
        self.put.push(id);
    }

    /// Puts questions to the client. Completes with one that the answer to the request must ask. It may be dropped at
    /// any time.
    pub(crate) async fn next(&mut self) -> Box<NestedQuestion> {
        loop {
            if let Some(shown) = &mut self.shown {
                shown.await;
                self.shown = None;
            }
            match self.unseen().await {
                None => {
                    if self.changes.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Some(question) if is_modern(self.context) => return Box::new(question),
                Some(question) => {
                    let closing = self.closing.clone();
                    self.shown = Some(Box::pin(show(self.server, self.context, question, closing)));
                }
            }
        }
    }

    /// The next question for the caller.
    async fn unseen(&mut self) -> Option<NestedQuestion> {
        let gatekeeper = self.server.engine.gatekeeper();
        for id in gatekeeper.open_questions(self.run.as_str()) {
            if self.put.contains(&id) {
                continue;
            }
            let found = gatekeeper.approvals().get(&id).await;
            self.put.push(id);
            if let Ok((asked, arguments)) = found
                && asked.by == ApproveBy::Caller
                && asked.state == ApprovalState::Pending
            {
                return Some(NestedQuestion { asked, arguments });
            }
        }
        None
    }

    /// Takes back a form that is shown.
    pub(crate) async fn close(&mut self) {
        self.closing.cancel();
        if let Some(shown) = self.shown.take() {
            shown.await;
        }
    }
}

/// Shows a form until it is answered, the question is decided elsewhere, or the run has ended.
async fn show(
    server: &Server,
    context: &RequestContext<RoleServer>,
    question: NestedQuestion,
    closing: CancellationToken,
) {
    let NestedQuestion { asked, arguments } = question;
    let client = Client { context: Some(context), input: None };
    let question = Question { server, asked: &asked, arguments: &arguments, client };
    let mut shown = question.elicit(context).await;
    if shown.is_none() {
        return;
    }
    let decided = server.engine.gatekeeper().approvals().until_decided(&asked.id, FORM_PATIENCE);
    tokio::select! {
        biased;
        () = closing.cancelled() => {}
        () = question.gone() => {}
        _ = decided => {}
        answer = answered(&mut shown) => {
            shown = None;
            // Without a choice the question stays with the operator.
            question.take(form::choice(&answer)).await.ok();
        }
    }
    if let Some(shown) = shown {
        // The client may be gone.
        shown.cancel(Some("the question is closed".to_owned())).await.ok();
    }
}

impl NestedQuestion {
    /// The answer to a request of the newer era that waits for the run.
    pub(crate) async fn input_required(
        &self,
        server: &Server,
        caller: &Caller,
        run: &RunId,
    ) -> Option<InputRequiredResult> {
        let codec = codec(server).await?;
        let request = form::input_request(&self.asked, &self.arguments)?;
        let mut requests = InputRequests::new();
        requests.insert(FORM.to_owned(), request);
        let bound_to = bound_to(caller);
        // Without an end: a late answer must find the run that it belongs to, not begin another one.
        let options = SealOptions::new().associated_data(&bound_to);
        let named = format!("{} {}", run.as_str(), self.asked.id.as_str());
        let state = codec.seal_with(named.as_bytes(), &options);
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }
}

impl NestedAnswer {
    /// What a repeated request answers: its state was sealed by a server of this state directory for this caller.
    pub(crate) async fn of(server: &Server, caller: &Caller, input: &GivenInput) -> Option<Self> {
        let state = input.state.as_deref()?;
        let opened = codec(server).await?.open_with(state, &bound_to(caller)).ok()?;
        let (run, id) = std::str::from_utf8(&opened).ok()?.split_once(' ')?;
        let answer = input.responses.as_ref().and_then(|responses| responses.get(FORM)).cloned();
        Some(Self { run: RunId::parse(run)?, id: ApprovalId::parse(id)?, answer })
    }

    /// Decides as the user chose. Without a choice, the question stays with the operator.
    pub(crate) async fn decide(&self, server: &Server) {
        let Some(choice) = self.answer.as_ref().and_then(form::choice) else { return };
        let found = server.engine.gatekeeper().approvals().get(&self.id).await;
        if let Ok((asked, arguments)) = found
            && asked.by == ApproveBy::Caller
        {
            let question = Question { server, asked: &asked, arguments: &arguments, client: Client::NONE };
            question.take(Some(choice)).await.ok();
        }
    }
}

/// What seals the state of these questions to their caller, and apart from others.
fn bound_to(caller: &Caller) -> Vec<u8> {
    format!("nested {}", caller.principal.as_str()).into_bytes()
}

async fn codec(server: &Server) -> Option<RequestStateCodec> {
    let key = server.engine.gatekeeper().approvals().seal_key().await.ok()?;
    RequestStateCodec::try_new(key.to_vec()).ok()
}
