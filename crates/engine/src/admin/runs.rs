//! Runs of all principals: listed, looked at and ended by operators. Neither programs nor their output are shown.

use std::time::Duration;

use policy::{Caller, Principal};
use sandbox::Outcome;
use serde::Serialize;
use wire::Exit;

use super::{Operator, Page, PageAsk, newest_first, time_of};
use crate::conversation::Stop;
use crate::result::{RunError, RunPhase, RunResult, RunUsage};
use crate::runs::{FinishedRun, FoundRun, ListedRun, RunId, Runs};

/// How long the answer to a cancellation waits for the end of the run.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunView {
    /// Its handle.
    pub run_id: String,
    /// Whose it is.
    pub principal: String,
    /// Its language, as the caller gave it.
    pub language: String,
    /// How it ended, or `running`.
    pub outcome: &'static str,
    /// When the caller asked for it, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
}

/// A run with what the host measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDetail {
    /// As in a list.
    #[serde(flatten)]
    pub run: RunView,
    /// Whether another server of the state directory runs it.
    pub is_elsewhere: bool,
    /// The exit status of its program.
    pub exit_code: Option<i32>,
    /// The signal that ended its program.
    pub signal: Option<i32>,
    /// The code of its error.
    pub error_code: Option<String>,
    /// The wall that it was behind.
    pub wall: Option<String>,
    /// What it used, once it has ended.
    pub usage: Option<RunUsage>,
}

impl RunView {
    fn new(principal: &Principal, run: &ListedRun) -> Self {
        Self {
            run_id: run.id.as_str().to_owned(),
            principal: principal.as_str().to_owned(),
            language: run.language.clone(),
            outcome: run.outcome.name(),
            created_ms: run.created_ms,
            ended_ms: run.ended_ms,
        }
    }

    fn order(&self) -> String {
        newest_first(self.created_ms, &self.run_id)
    }
}

impl RunDetail {
    fn in_progress(run: RunView, is_elsewhere: bool) -> Self {
        let (exit_code, signal, error_code, wall, usage) = (None, None, None, None, None);
        Self { run, is_elsewhere, exit_code, signal, error_code, wall, usage }
    }

    fn ended(run: &FinishedRun) -> Self {
        let RunResult { outcome, error, backend, phase, .. } = &run.result;
        let listed = ListedRun {
            id: run.id.clone(),
            language: run.language.clone(),
            outcome: *outcome,
            created_ms: run.created_ms,
            ended_ms: Some(run.ended_ms),
        };
        let execution = match phase {
            RunPhase::Finished(execution) => Some(execution),
            RunPhase::NotStarted => None,
        };
        let exit = execution.and_then(|execution| execution.exit);
        Self {
            run: RunView::new(&run.principal, &listed),
            is_elsewhere: false,
            exit_code: exit.and_then(|exit| if let Exit::Code(code) = exit { Some(code) } else { None }),
            signal: exit.and_then(|exit| if let Exit::Signal(signal) = exit { Some(signal) } else { None }),
            error_code: error.as_ref().map(|error| error.code.clone()),
            wall: execution.map(|_| backend.to_string()),
            usage: execution.map(|execution| execution.usage),
        }
    }
}

impl Runs {
    /// Runs of all principals or of one, newest first.
    pub async fn list_across(&self, _operator: &Operator, ask: &PageAsk) -> Result<Page<RunView>, RunError> {
        let until_ms = ask.after.as_deref().and_then(time_of).unwrap_or(i64::MAX as u64);
        let stored = self.store().list_across(ask.principal.as_ref(), until_ms, ask.limit + 1).await;
        let stored = stored.map_err(|error| error.to_run_error())?;
        // A run of this server is newer in memory than in the store.
        let live = self.live_across();
        let is_wanted = |principal: &Principal| ask.principal.as_ref().is_none_or(|one| one == principal);
        let is_live = |run: &ListedRun| live.iter().any(|(_, known)| known.id == run.id);
        let stored = stored.iter().filter(|(_, run)| !is_live(run));
        let all = live.iter().chain(stored).filter(|(principal, _)| is_wanted(principal));
        let views: Vec<RunView> = all.map(|(principal, run)| RunView::new(principal, run)).collect();
        Ok(Page::of(views, ask, RunView::order))
    }

    /// A run of any principal.
    pub async fn look_across(&self, operator: &Operator, id: &RunId) -> Result<Option<RunDetail>, RunError> {
        Ok(self.find_across(operator, id).await?.map(|(principal, found)| detail(&principal, &found)))
    }

    /// Ends a run of any principal that is in progress in this server. A run that has ended stays as it is.
    pub async fn end_across(&self, operator: &Operator, id: &RunId) -> Result<Option<RunDetail>, RunError> {
        let Some((principal, found)) = self.find_across(operator, id).await? else { return Ok(None) };
        let run = match &found {
            FoundRun::Live(run) => run,
            FoundRun::Finished(_) => return Ok(Some(detail(&principal, &found))),
            FoundRun::Elsewhere(_) => return Err(elsewhere()),
        };
        tracing::info!(run_id = id.as_str(), principal = %operator.caller(), "run_ended_by_operator");
        run.stop(Stop::Killed);
        let ended = run.wait(END_PATIENCE).await;
        Ok(Some(ended.map_or_else(|| detail(&principal, &found), |ended| RunDetail::ended(&ended))))
    }

    async fn find_across(
        &self,
        _operator: &Operator,
        id: &RunId,
    ) -> Result<Option<(Principal, FoundRun)>, RunError> {
        let live = self.live_across().into_iter().find(|(_, run)| run.id == *id);
        let owner = match live {
            Some((owner, _)) => Some(owner),
            None => self.store().owner_of(id).await.map_err(|error| error.to_run_error())?,
        };
        let Some(owner) = owner else { return Ok(None) };
        let found = self.find(&Caller::owner(owner.clone()), id).await?;
        Ok(found.map(|found| (owner, found)))
    }
}

fn detail(principal: &Principal, found: &FoundRun) -> RunDetail {
    let view = |id: &RunId, language: &str, created_ms| {
        let (id, language) = (id.clone(), language.to_owned());
        let run = ListedRun { id, language, outcome: Outcome::Running, created_ms, ended_ms: None };
        RunView::new(principal, &run)
    };
    match found {
        FoundRun::Live(run) => {
            RunDetail::in_progress(view(run.id(), run.language(), run.created_ms()), false)
        }
        FoundRun::Elsewhere(run) => {
            RunDetail::in_progress(view(&run.id, &run.language, run.created_ms), true)
        }
        FoundRun::Finished(run) => RunDetail::ended(run),
    }
}

fn elsewhere() -> RunError {
    let message = "another server of this state directory runs it, and only that server can end it";
    RunError::new("run_elsewhere", message).remedy("ask that server, or revoke the key of its caller")
}
