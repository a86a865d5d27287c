//! A command on a terminal, over the files of a persistent sandbox (`palisade sandbox exec -t`).
//!
//! The command runs in a separate wall, as a language without a live interpreter does. It holds the turn of the
//! sandbox. The wall and everything in it end with the command. Every live language is there, as in the sandbox itself.
//! `Engine::run_in` calls this module.

use sandbox::{Limits, SandboxSpec};

use crate::conversation::{MAIN, StartedProcess};
use crate::given::Given;
use crate::request::TerminalRequest;
use crate::runtimes::{DriverCall, Runtime};
use crate::{Engine, Wall, sandboxes};

/// Replaces the shell by the command, which the shell finds in its `PATH`.
const EXEC: &str = "exec \"$@\"";
const KIND_DEFAULT: &str = "dumb";

impl Engine {
    /// The spec of a sandbox in which a command of that shell runs.
    pub(crate) async fn terminal_spec(&self, wall: &Wall, shell: &Runtime, limits: &Limits) -> SandboxSpec {
        let mut spec = self.spec(shell, limits, Vec::new());
        sandboxes::add_live_languages(&mut spec, &sandboxes::live_runtimes(wall).await);
        spec
    }
}

/// The process of the command.
pub(crate) fn command(
    asked: &TerminalRequest,
    shell: &Runtime,
    mut env: Vec<(String, String)>,
    given: &Given,
) -> StartedProcess {
    // The first word of the driver's command is the shell.
    let shell_path =
        shell.command(&DriverCall { mode: "", source: "" }).into_iter().next().unwrap_or_default();
    let options = ["--norc", "--noprofile", "-c", EXEC].map(str::to_owned);
    let mut argv = vec![shell_path.clone()];
    argv.extend(options);
    argv.push(shell_path);
    argv.extend(asked.command.iter().cloned());
    let kind = if asked.kind.is_empty() { KIND_DEFAULT } else { &asked.kind };
    env.retain(|(name, _)| name != "TERM");
    env.push(("TERM".to_owned(), kind.to_owned()));
    let given = given.pairs();
    env.retain(|(name, _)| given.iter().all(|(other, _)| other != name));
    env.extend(given);
    StartedProcess { process: MAIN, argv, env, has_channel: false, terminal: Some(asked.size) }
}
