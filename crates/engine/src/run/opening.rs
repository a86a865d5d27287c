//! What a run sends to its sandbox before the program begins: files, and the order to its driver or process.

use super::{FRESH, Prepared, in_workspace};
use crate::conversation::{Conversation, MAIN, Overflow, PREPARE, Preparation, StartedProcess};
use crate::driver::{self, DriverRun};
use crate::feed::Feed;
use crate::given::{Given, Giving};
use crate::guest_client::GuestError;
use crate::request::RunRequest;
use crate::runtimes::{CpuShare, DriverCall, Preparing};
use crate::{terminal, unpack, variables};

impl Prepared {
    /// Sends the files and the order together. The interpreter starts in the meantime.
    pub(super) async fn open<'a>(
        &mut self,
        request: &RunRequest,
        stdin: &Feed,
    ) -> Result<Conversation<'a>, GuestError> {
        let guest = self.lease.connect().await?;
        let mut conversation =
            Conversation::once(guest, self.terms.limits.output_bytes, Overflow::EndsProgram);
        conversation.redact(request.given.redactor());
        let unpack = unpack::command(&request.inputs);
        let given = self.given_by_message(request);
        // Ahead of everything: a waiting interpreter takes it over while the guest works on the rest. An archive is
        // unpacked first, with nothing given to any process.
        let (ahead, with_order) = if unpack.is_none() { (given, Vec::new()) } else { (Vec::new(), given) };
        conversation.give(&ahead)?;
        conversation.grant(self.reach.as_ref())?;
        for input in &request.inputs {
            conversation.place(&input.path, &input.content).await?;
        }
        conversation.unpack(unpack, &self.runtime)?;
        if self.built.is_some() {
            // A driver is already open at this point. A compiled program has no driver.
            let argv = self.runtime.run_command(&request.args, &request.given, &self.terms.limits);
            let env = self.runtime.environment_with(
                CpuShare::of(&self.terms.limits),
                self.shown.shows(),
                &request.given,
            );
            conversation.open(StartedProcess {
                process: MAIN,
                argv,
                env,
                has_channel: false,
                terminal: None,
            })?;
        } else if let Some(asked) = &request.terminal {
            let env = self.runtime.environment_with(
                CpuShare::of(&self.terms.limits),
                self.shown.shows(),
                &Given::default(),
            );
            conversation.open(terminal::command(asked, &self.runtime, env, &request.given))?;
        } else {
            if self.giving == Giving::AtStart {
                self.start_with_given(&mut conversation, &request.given)?;
            }
            self.order(&mut conversation, request, &with_order).await?;
        }
        if stdin.is_over() {
            conversation.end_input()?;
        }
        conversation.send().await?;
        Ok(conversation)
    }

    /// What the driver is given by a message. A program without a driver, and an interpreter that starts with it, get none.
    fn given_by_message(&self, request: &RunRequest) -> Vec<(String, String)> {
        let has_driver = self.built.is_none() && request.terminal.is_none();
        match self.giving {
            Giving::ByMessage if has_driver => request.given.pairs(),
            Giving::ByMessage | Giving::AtStart => Vec::new(),
        }
    }

    /// Starts the interpreter with what the run is given, and the preparer without it.
    fn start_with_given(&self, conversation: &mut Conversation<'_>, given: &Given) -> Result<(), GuestError> {
        let call = DriverCall { mode: FRESH, source: &in_workspace(&self.source) };
        let share = CpuShare::of(&self.terms.limits);
        let (argv, env) =
            (self.runtime.command(&call), self.runtime.environment_with(share, self.shown.shows(), given));
        conversation.open(StartedProcess { process: MAIN, argv, env, has_channel: true, terminal: None })?;
        match self.runtime.preparing(&call) {
            None => Ok(()),
            Some(Preparing { command: argv, .. }) => {
                let (env, process) = (self.runtime.environment(share, self.shown.shows()), PREPARE);
                conversation.open(StartedProcess { process, argv, env, has_channel: false, terminal: None })
            }
        }
    }

    /// Sends the program to its driver. Where the language needs a preparer, the preparer gets the program
    /// first. `given` goes with it.
    async fn order(
        &mut self,
        conversation: &mut Conversation<'_>,
        request: &RunRequest,
        given: &[(String, String)],
    ) -> Result<(), GuestError> {
        conversation.place(&self.source, request.code.as_bytes()).await?;
        let path = in_workspace(&self.source);
        let variables = variables::fields(self.runtime.variable_style(), &request.variables);
        // The code is also in the file: some drivers read it from the file much faster than from the channel.
        let code = self.runtime.told(&request.code);
        let (variables, args) = (&variables, &request.args);
        let run = DriverRun { source: &path, code, variables, args, given };
        let order = driver::fresh_run(&run);
        match self.runtime.preparing(&DriverCall { mode: FRESH, source: &path }) {
            None => conversation.order(order),
            Some(preparing) => conversation.prepare(Preparation::new(preparing, order, None)),
        }
    }
}
