//! A run that its caller is connected to as to a process: input arrives during the run, output leaves as it comes.
//!
//! The control socket of `service` uses it; MCP has no such call. The arguments are those of `run`, without `stdin`.

use std::sync::Arc;

use engine::{Caller, FinishedRun, RunError, RunEvent, StartedRun, Stdin, TerminalRequest};
use rmcp::model::{CallToolResult, JsonObject};
use sandbox::Outcome;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{report, resolve_sandbox, run};
use crate::Server;

/// Events that wait for the caller. The program waits for a caller that does not take them.
const EVENTS_MAX: usize = 16;

/// What is connected to the run.
#[derive(Debug)]
pub struct AttachedStreams {
    /// Its standard input.
    pub stdin: Stdin,
    /// The command and its terminal, instead of a program.
    pub terminal: Option<TerminalRequest>,
}

/// A run in progress. Dropping it stops the run.
pub struct AttachedRun {
    started: StartedRun,
    /// The output of the run, and its wishes for input. Ends with the run.
    pub events: mpsc::Receiver<RunEvent>,
    _room: OwnedSemaphorePermit,
}

impl AttachedRun {
    /// The id of the run.
    pub fn id(&self) -> &str {
        self.started.id().as_str()
    }

    /// Completes when the run has ended. Borrows nothing.
    pub fn finished(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        self.started.finished()
    }
}

impl Server {
    /// Starts a run with these arguments of the tool `run`. The error is the structured result of a refusal.
    ///
    /// A person is at the other end of a terminal and of prompted input, so such a run has the longest time that the
    /// policy allows, unless the arguments ask for another one.
    pub async fn attach(
        &self,
        caller: &Caller,
        mut given: JsonObject,
        streams: AttachedStreams,
    ) -> Result<AttachedRun, Value> {
        let refused = |outcome: Outcome, error: RunError| structured(report::unstarted(self, outcome, error));
        let resolved = resolve_sandbox(self, caller, &run::TOOL, &mut given).await;
        resolved.map_err(|error| refused(Outcome::Refused, error))?;
        let asked = run::asked(given).map_err(|error| refused(Outcome::Refused, *error))?;
        let mut request = asked.request;
        let is_for_a_person = streams.terminal.is_some() || matches!(streams.stdin, Stdin::Prompted(_));
        if is_for_a_person && request.ask.timeout_ms.is_none() {
            request.ask.timeout_ms = Some(self.engine.policy().maxima.wall_ms);
        }
        request.stdin = streams.stdin;
        request.terminal = streams.terminal;
        let room =
            self.hold(run::weight(&request)).ok_or_else(|| refused(Outcome::Unavailable, run::no_room()))?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let started = self.runs.start_attached(caller, request, sender);
        let started = started.map_err(|error| refused(Outcome::Unavailable, error))?;
        Ok(AttachedRun { started, events, _room: room })
    }

    /// The structured result of a run that has ended.
    pub async fn result_of(&self, caller: &Caller, run: &FinishedRun) -> Value {
        run::log_end(run);
        structured(report::finished(self, caller, run, None).await)
    }
}

fn structured(answer: CallToolResult) -> Value {
    answer.structured_content.unwrap_or_default()
}
