//! Follows a run while its caller waits: sends progress and notices when the caller disconnects.

use std::sync::Arc;
use std::time::Duration;

use engine::{ApprovalId, FinishedRun, LiveRun, RunNews, Stop};
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use crate::approvals::nested::{NestedQuestion, RunQuestions};
use crate::progress::Progress;
use crate::{Server, given_up};

/// Below the 60 seconds after which most clients time out.
const WAIT_MS_DEFAULT: u64 = 45_000;
const WAIT_MS_MAX: u64 = 600_000;

/// How long the caller waits.
pub(crate) fn patience(asked_ms: Option<u64>) -> Duration {
    Duration::from_millis(asked_ms.unwrap_or(WAIT_MS_DEFAULT).min(WAIT_MS_MAX))
}

/// What happens to the run when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The run ends, because the call started it.
    Stop,
    /// The run continues, because the call only observed it.
    Detach,
}

/// What became of a run while its caller waited.
pub(crate) enum Followed {
    Finished(Arc<FinishedRun>),
    /// The time is over, or the caller is gone.
    Over,
    /// The caller is to answer a question about a call of the program, and to come back.
    Asks(Box<NestedQuestion>),
}

/// A caller that waits for a run.
pub(crate) struct Follower<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    run: LiveRun,
    /// Progress notifications and their source; `None` if the caller did not ask for progress.
    progress: Option<(Progress, RunNews)>,
    /// `None` if the caller is not asked about calls of the program.
    questions: Option<RunQuestions<'a>>,
}

impl<'a> Follower<'a> {
    /// Follows events from now on.
    pub(crate) fn new(server: &'a Server, context: &'a RequestContext<RoleServer>, run: LiveRun) -> Self {
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| {
            let progress = Progress::new(context.peer.clone(), token, run.id().clone());
            (progress, run.follow())
        });
        Self { server, context, run, progress, questions: None }
    }

    /// Has the caller asked about calls of the program, where it can be asked. Those in `seen` stay with the operator.
    pub(crate) fn asking(mut self, can_return: bool, seen: Option<ApprovalId>) -> Self {
        self.questions = RunQuestions::new(self.server, self.context, self.run.id(), can_return);
        if let (Some(questions), Some(seen)) = (&mut self.questions, seen) {
            questions.pass_over(seen);
        }
        self
    }

    /// Returns the finished run. Returns `None` if the time is over or the caller disconnects first. Nothing is asked.
    pub(crate) async fn follow(
        &mut self,
        patience: Duration,
        on_disconnect: OnDisconnect,
    ) -> Option<Arc<FinishedRun>> {
        if let Some(mut questions) = self.questions.take() {
            questions.close().await;
        }
        match self.follow_asking(patience, on_disconnect).await {
            Followed::Finished(run) => Some(run),
            Followed::Over | Followed::Asks(_) => None,
        }
    }

    /// Follows the run until it ends, the time is over, the caller disconnects, or a question needs its answer.
    pub(crate) async fn follow_asking(
        &mut self,
        patience: Duration,
        on_disconnect: OnDisconnect,
    ) -> Followed {
        let finished = self.run.finished();
        let clock = tokio::time::sleep(patience);
        tokio::pin!(finished, clock);
        let mut is_stopped = false;
        loop {
            let why = tokio::select! {
                biased;
                run = &mut finished => return Followed::Finished(run),
                why = self.server.ended(), if !is_stopped => why,
                () = given_up(self.context), if !is_stopped => Stop::Cancelled,
                () = &mut clock, if !is_stopped => return Followed::Over,
                question = next_question(&mut self.questions), if !is_stopped => return Followed::Asks(question),
                () = tell_news(&mut self.progress) => continue,
            };
            if on_disconnect == OnDisconnect::Detach {
                return Followed::Over;
            }
            // A stopped run ends soon, so the loop waits for it.
            self.run.stop(why);
            is_stopped = true;
        }
    }

    /// Takes back what is asked and sends the last notification, so that none arrives after the answer.
    pub(crate) async fn end(&mut self) {
        if let Some(mut questions) = self.questions.take() {
            questions.close().await;
        }
        if let Some((progress, _)) = &mut self.progress {
            progress.finish().await;
        }
    }
}

/// The next question for the caller. Never completes if it is not asked.
async fn next_question(questions: &mut Option<RunQuestions<'_>>) -> Box<NestedQuestion> {
    match questions {
        Some(questions) => questions.next().await,
        None => std::future::pending().await,
    }
}

/// Accepts an event of the run, or sends a notification when one is due. Never completes if the caller did
/// not ask for progress.
async fn tell_news(followed: &mut Option<(Progress, RunNews)>) {
    let Some((progress, news)) = followed else { return std::future::pending().await };
    tokio::select! {
        Some(event) = news.next() => progress.take(&event, news.take_left_out()),
        () = progress.due() => progress.tell(),
    }
}
