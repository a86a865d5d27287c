//! A server to measure: this binary as `palisade mcp`, with a temporary state directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{BenchCall, Client};
use super::progress::Progress;

/// Maximum time for a server to end after its input has ended.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// Maximum time for all canaries together.
const SETTLE_PATIENCE: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Maximum length of the quoted log of a failed server.
const LAST_WORDS_BYTES: usize = 600;

/// How servers are started.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) binary: PathBuf,
    /// State of the server.
    pub(super) state_dir: PathBuf,
    /// The file for the server's error stream.
    pub(super) log: PathBuf,
    /// Global flags that are passed on.
    pub(super) flags: Vec<String>,
    /// Settings, as variables.
    pub(super) env: Vec<(&'static str, String)>,
}

impl Recipe {
    /// `palisade COMMAND` with the flags. Only its error stream is set.
    pub(super) fn command(&self, arguments: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).args(&self.flags).arg("--state-dir").arg(&self.state_dir);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env_remove("PALISADE_STATE_DIR").stderr(File::create(&self.log)?);
        Ok(command)
    }

    /// The end of the last server's error output.
    pub(super) fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

fn last_words(log: &Path) -> String {
    let said = std::fs::read(log).unwrap_or_default();
    let tail = said.get(said.len().saturating_sub(LAST_WORDS_BYTES)..).unwrap_or_default();
    String::from_utf8_lossy(tail).trim().to_owned()
}

/// A running server; ends when dropped.
pub(super) struct Server {
    child: Child,
    /// Dropped first at the end, because the end of its input ends the server.
    client: Option<Client>,
    /// From the start of the process to the first answer.
    pub(super) started_in: Duration,
}

impl Server {
    /// Starts a server and waits until it answers `server/discover`.
    pub(super) fn start(recipe: &Recipe) -> Result<Self, String> {
        let mut command = recipe.command(&["mcp"]).map_err(|error| format!("starting a server: {error}"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("starting a server: {error}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a server without streams".to_owned());
        };
        let client = Client::new(stdin, stdout);
        let mut server = Self { child, client: Some(client), started_in: Duration::ZERO };
        let discover = BenchCall::method("server/discover", json!({}));
        let answer = server.client()?.send(&discover).and_then(super::client::Pending::wait);
        match answer.and_then(|answer| answer.result.map(|_| answer.at)) {
            Ok(at) => {
                server.started_in = at.duration_since(began);
                Ok(server)
            }
            Err(error) => {
                Err(format!("the server does not answer: {error}. It said: {}", recipe.last_words()))
            }
        }
    }

    /// Waits until the server has tried every language that it found. The server stores the results, and
    /// later servers over the same state use them. Otherwise compilers would share the machine with the
    /// measurement. The wait is bounded; after that they do.
    pub(super) fn settle(&self, progress: &mut Progress) -> Result<(), String> {
        let deadline = Instant::now() + SETTLE_PATIENCE;
        let ask = BenchCall::tool("get_capabilities", &json!({}));
        progress.begin("trying every language once");
        while Instant::now() < deadline {
            let known = self.client()?.send(&ask)?.wait()?.result?.languages;
            let open = known.iter().filter(|language| language.state == "checking").count();
            if open == 0 {
                return Ok(());
            }
            progress.step(known.len() - open, known.len());
        }
        Ok(())
    }

    pub(super) fn client(&self) -> Result<&Client, String> {
        self.client.as_ref().ok_or_else(|| "the server has ended".to_owned())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.client.take());
        end(&mut self.child);
    }
}

/// Waits for a process that was asked to end; kills it if it does not.
pub(super) fn end(child: &mut Child) {
    let deadline = Instant::now() + END_PATIENCE;
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if Instant::now() > deadline {
            child.kill().ok();
            child.wait().ok();
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
