//! One run of a live interpreter: its files and its order, for a [`Conversation`] in mode kept.

use std::sync::Arc;
use std::time::Duration;

use sandbox::{DiskHeld, Limits};
use tokio::time::Instant;

use super::awake::AwakeSandbox;
use crate::conversation::{
    Audience, Conversation, GuestChannel, KEEP, KeptEnd, KeptInterpreter, Preparation, StopSignals,
};
use crate::driver::{self, DriverRun};
use crate::feed::Feed;
use crate::guest_client::GuestError;
use crate::handle;
use crate::links::Reach;
use crate::request::{RunRequest, Stdin};
use crate::result::RunError;
use crate::run::{OWN_FILES, in_workspace};
use crate::runtimes::DriverCall;
use crate::unpack;
use crate::variables;

pub(super) const STDIN_FILE: &str = "stdin";
/// The named pipe for input that arrives during the run.
const STDIN_PIPE: &str = "/tmp/.palisade/stdin";

/// The inputs of a live run.
pub(super) struct LiveRun<'a> {
    pub(super) request: &'a RunRequest,
    /// The interpreter that executes it.
    pub(super) interpreter: KeptInterpreter<'a>,
    pub(super) limits: &'a Limits,
    /// The size of the files, if it is known.
    pub(super) held: Option<DiskHeld>,
    /// What the program may reach outside; `None` if nothing was granted.
    pub(super) reach: Option<Arc<Reach>>,
    /// Whether standard input arrives during the run.
    pub(super) is_streamed: bool,
}

impl LiveRun<'_> {
    /// Executes the run in that sandbox and returns the sandbox. On error, nothing of the run had begun there.
    /// Also returns when the order was sent. `feed` is input that arrives during the run; it is put back if nothing of
    /// the run had begun.
    pub(super) async fn play(
        &self,
        awake: AwakeSandbox,
        feed: &mut Feed,
        audience: &mut Audience,
        stops: &mut StopSignals,
    ) -> Result<(AwakeSandbox, KeptEnd, Instant), Unbegun> {
        let AwakeSandbox { mut sandbox, channel, charged_cpu_us, packages } = awake;
        sandbox.measure_anew(self.limits, self.held).await;
        let mut conversation = self.begin(channel).await?;
        conversation.feed(std::mem::replace(feed, Feed::Over));
        conversation.tell_to(audience);
        let began = Instant::now();
        let deadline = began + Duration::from_millis(self.limits.wall_ms);
        let (channel, mut end) = conversation.play(sandbox.as_mut(), stops, deadline).await;
        if end.is_unbegun() {
            *feed = std::mem::replace(&mut end.unsent, Feed::Over);
        }
        Ok((AwakeSandbox { sandbox, channel, charged_cpu_us, packages }, end, began))
    }

    /// Sends the sync question, the files and the order.
    async fn begin<'a>(&'a self, channel: GuestChannel) -> Result<Conversation<'a>, Unbegun> {
        let Self { request, interpreter, limits, .. } = self;
        let runtime = interpreter.runtime;
        // A process that an earlier run left behind does not know this random id, so it cannot report the end
        // of this run.
        let id = handle::random("")?;
        let mut conversation = Conversation::kept(channel, *interpreter, id.clone(), limits.output_bytes)?;
        conversation.redact(request.given.redactor());
        conversation.grant(self.reach.as_ref())?;
        for input in &request.inputs {
            conversation.place(&input.path, &input.content).await?;
        }
        conversation.unpack(unpack::command(&request.inputs), runtime)?;
        let stdin_path = match &request.stdin {
            Stdin::Bytes(bytes) => {
                let name = format!("{OWN_FILES}{STDIN_FILE}");
                conversation.place(&name, bytes).await?;
                in_workspace(&name)
            }
            _ if self.is_streamed => {
                conversation.name_input(STDIN_PIPE)?;
                STDIN_PIPE.to_owned()
            }
            Stdin::Empty | Stdin::Stream(_) | Stdin::Prompted(_) => String::new(),
        };
        let variables = variables::fields(runtime.variable_style(), &request.variables);
        let given = request.given.pairs();
        let source = runtime.source_path();
        let order = |code: &str| {
            let (variables, args, given) = (&variables, &request.args, &given);
            let run = DriverRun { source: &source, code, variables, args, given };
            driver::kept_run(&run, &id, &stdin_path)
        };
        let hidden = format!("{OWN_FILES}{}", runtime.source());
        match runtime.preparing(&DriverCall { mode: KEEP, source: &in_workspace(&hidden) }) {
            None => conversation.order(order(&request.code))?,
            Some(how) => {
                conversation.place(&hidden, request.code.as_bytes()).await?;
                conversation.prepare(Preparation::new(how, order(""), Some(order(&request.code))))?;
            }
        }
        conversation.send().await?;
        Ok(conversation)
    }
}

/// Why a live run did not begin.
pub(super) enum Unbegun {
    Guest(GuestError),
    Host(RunError),
}

impl From<GuestError> for Unbegun {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

impl From<RunError> for Unbegun {
    fn from(error: RunError) -> Self {
        Self::Host(error)
    }
}
