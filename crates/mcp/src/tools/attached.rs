//! A run that its caller is connected to as to a process: input arrives during the run, output leaves as it comes.
//!
//! The control socket of `service` uses it; MCP has no such call. The arguments are those of `run`, without `stdin`.

use std::sync::Arc;

use engine::{Admitted, Caller, FinishedRun, RunError, RunEvent, StartedRun, Stdin, TerminalRequest};
use rmcp::model::{CallToolResult, JsonObject};
use sandbox::Outcome;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{report, run};
use crate::approvals::Client;
use crate::{Server, gate};

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
    admitted: Admitted,
    _room: OwnedSemaphorePermit,
}

type Started = (StartedRun, mpsc::Receiver<RunEvent>, OwnedSemaphorePermit);

impl AttachedRun {
    /// The id of the run.
    pub fn id(&self) -> &str {
        self.started.id().as_str()
    }

    /// Tells the gatekeeper how the run ended.
    pub async fn settle(self, outcome: Outcome) {
        self.admitted.settle(Some(outcome)).await;
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
        given: JsonObject,
        streams: AttachedStreams,
    ) -> Result<AttachedRun, Value> {
        let admitted = gate::admit(self, (caller, Client::NONE), &run::TOOL, given).await;
        let (admitted, given) =
            admitted.map_err(|error| self.refused(Outcome::Refused, error.into_error()))?;
        match self.start_attached(caller, given, streams, &admitted) {
            Ok((started, events, room)) => Ok(AttachedRun { started, events, admitted, _room: room }),
            Err((outcome, error)) => {
                admitted.settle(Some(outcome)).await;
                Err(self.refused(outcome, error))
            }
        }
    }

    fn refused(&self, outcome: Outcome, error: RunError) -> Value {
        structured(report::unstarted(self, outcome, error))
    }

    fn start_attached(
        &self,
        caller: &Caller,
        given: JsonObject,
        streams: AttachedStreams,
        admitted: &Admitted,
    ) -> Result<Started, (Outcome, RunError)> {
        let asked = run::asked(given).map_err(|error| (Outcome::Refused, *error))?;
        let mut request = asked.request;
        let is_for_a_person = streams.terminal.is_some() || matches!(streams.stdin, Stdin::Prompted(_));
        if is_for_a_person && request.ask.timeout_ms.is_none() {
            request.ask.timeout_ms = Some(self.engine.policy().maxima.wall_ms);
        }
        request.decision = admitted.decision();
        request.wall_lists = admitted.wall_lists();
        request.stdin = streams.stdin;
        request.terminal = streams.terminal;
        let room = self.hold(run::weight(&request)).ok_or((Outcome::Unavailable, run::no_room()))?;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let started = self.runs.start_attached(caller, request, sender);
        let started = started.map_err(|error| (Outcome::Unavailable, error))?;
        Ok((started, events, room))
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
