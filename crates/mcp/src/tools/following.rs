//! Stays with a run for as long as its caller waits: tells news, notices that the caller is gone.

use std::sync::Arc;
use std::time::Duration;

use engine::{FinishedRun, LiveRun, LogRange, Principal, RunEvent, Stop};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::sync::watch;
use wire::Stream;

use crate::progress::Progress;
use crate::{Server, given_up};

/// Below the 60 seconds after which most clients give up.
const WAIT_MS_DEFAULT: u64 = 45_000;
const WAIT_MS_MAX: u64 = 600_000;
/// News read at once.
const NEWS_BYTES_MAX: usize = 64 << 10;

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
    principal: &'a Principal,
    run: LiveRun,
    written: watch::Receiver<u64>,
    told: u64,
    progress: Option<Progress>,
}

impl<'a> Follower<'a> {
    /// Begins with the news from now on.
    pub(crate) fn new(
        server: &'a Server,
        context: &'a RequestContext<RoleServer>,
        principal: &'a Principal,
        run: LiveRun,
    ) -> Self {
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| Progress::new(context.peer.clone(), token, run.id().clone()));
        let mut written = run.subscribe();
        let told = *written.borrow_and_update();
        Self { server, context, principal, run, written, told, progress }
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
                Ok(()) = self.written.changed(), if self.progress.is_some() => {
                    self.read_news().await;
                    continue;
                }
                () = due(&mut self.progress) => {
                    if let Some(progress) = &mut self.progress { progress.tell() }
                    continue;
                }
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
        if let Some(progress) = &mut self.progress {
            progress.finish().await;
        }
    }

    async fn read_news(&mut self) {
        let end = *self.written.borrow_and_update();
        // A flood is told by its end.
        self.told = self.told.max(end.saturating_sub(NEWS_BYTES_MAX as u64));
        let range = LogRange { stream: None, offset: self.told, limit: NEWS_BYTES_MAX };
        // News that cannot be read are no news.
        let Ok(Some(part)) = self.server.runs.log(self.principal, self.run.id(), range).await else { return };
        self.told += part.bytes.len() as u64;
        if let Some(progress) = &mut self.progress {
            progress.take(&RunEvent::Output { stream: Stream::Stdout, data: part.bytes });
        }
    }
}

async fn due(progress: &mut Option<Progress>) {
    match progress {
        Some(progress) => progress.due().await,
        None => std::future::pending().await,
    }
}
