//! Stays with a run for as long as its caller waits: tells news, notices that the caller is gone.

use std::sync::Arc;
use std::time::Duration;

use engine::{FinishedRun, LiveRun, RunNews, Stop};
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use crate::progress::Progress;
use crate::{Server, given_up};

/// Below the 60 seconds after which most clients give up.
const WAIT_MS_DEFAULT: u64 = 45_000;
const WAIT_MS_MAX: u64 = 600_000;

/// How long a caller waits.
pub(crate) fn patience(asked_ms: Option<u64>) -> Duration {
    Duration::from_millis(asked_ms.unwrap_or(WAIT_MS_DEFAULT).min(WAIT_MS_MAX))
}

/// What becomes of the run when its caller goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// It ends: the call is the run.
    Stop,
    /// It goes on: the call only looked.
    Detach,
}

/// Somebody who waits for a run.
pub(crate) struct Follower<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    run: LiveRun,
    /// With the news that are told through it; nothing for a caller who did not ask.
    progress: Option<(Progress, RunNews)>,
}

impl<'a> Follower<'a> {
    /// Begins with the news from now on.
    pub(crate) fn new(server: &'a Server, context: &'a RequestContext<RoleServer>, run: LiveRun) -> Self {
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| {
            let progress = Progress::new(context.peer.clone(), token, run.id().clone());
            (progress, run.follow())
        });
        Self { server, context, run, progress }
    }

    /// How it ended, or nothing when the caller's patience, or the caller, went first.
    pub(crate) async fn follow(
        &mut self,
        patience: Duration,
        bond: OnDisconnect,
    ) -> Option<Arc<FinishedRun>> {
        let finished = self.run.finished();
        let clock = tokio::time::sleep(patience);
        tokio::pin!(finished, clock);
        let mut is_stopped = false;
        loop {
            let why = tokio::select! {
                biased;
                run = &mut finished => return Some(run),
                why = self.server.ended(), if !is_stopped => why,
                () = given_up(self.context), if !is_stopped => Stop::Cancelled,
                () = &mut clock, if !is_stopped => return None,
                () = tell_news(&mut self.progress) => continue,
            };
            if bond == OnDisconnect::Detach {
                return None;
            }
            // Its end is near, and is worth waiting for.
            self.run.stop(why);
            is_stopped = true;
        }
    }

    /// Lets the last notification out, so that none comes after the answer.
    pub(crate) async fn end(&mut self) {
        if let Some((progress, _)) = &mut self.progress {
            progress.finish().await;
        }
    }
}

/// Takes what the run writes, or tells what was taken when that is due. Never completes where nobody asked.
async fn tell_news(followed: &mut Option<(Progress, RunNews)>) {
    let Some((progress, news)) = followed else { return std::future::pending().await };
    tokio::select! {
        Some(event) = news.next() => progress.take(&event, news.take_left_out()),
        () = progress.due() => progress.tell(),
    }
}
