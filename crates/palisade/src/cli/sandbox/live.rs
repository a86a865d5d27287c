//! Follows a run in a sandbox of the server from a terminal: live output, Ctrl-C, and the end of the run.
//!
//! ```text
//! run -> progress ... -> answer            each progress: read the log of both streams from the last offset
//!     -> "running" after a long time -> wait -> ...
//! Ctrl-C: the run is cancelled by its id, or by disconnecting while its id is unknown; a second one does not wait
//! ```

use std::process::ExitCode;

use serde_json::{Value, json};

use super::interrupt::{Interrupts, Wish};
use crate::cli::screen::{ControlSequences, Screen};
use crate::cli::words;
use crate::client::{Client, ClientError, News, PendingCall};
use mcp::render;
use terminal::{INTERRUPTED, OTHER_LIMIT, OUTPUT_LIMIT, OWN_FAILURE, REFUSED, TIMED_OUT, complain};
use wire::Stream;

/// The longest time that a server waits before the client must ask again.
const WAIT_MS: u64 = 600_000;
const STREAMS: [(&str, Stream); 2] = [("stdout", Stream::Stdout), ("stderr", Stream::Stderr)];
/// The exit status after signal N is this plus N.
const SIGNAL_BASE: u64 = 128;

/// Whether output is shown as it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Live(ControlSequences),
    /// Only the answer is needed.
    Nothing,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The structured result.
    pub(crate) result: Value,
    /// Whether the shown output does not end with a line end.
    pub(crate) is_line_open: bool,
}

/// Calls the tool `run` with these arguments and follows the run to its end.
pub(crate) async fn run(
    client: &Client,
    mut arguments: Value,
    show: Show,
    interrupts: &mut Interrupts,
) -> Result<Ended, ClientError> {
    arguments["limits"]["wait_ms"] = json!(WAIT_MS);
    let screen = if let Show::Live(sequences) = show { Some(Screen::new(sequences)) } else { None };
    let mut watched =
        Watched { client, screen, run_id: None, offsets: [0; STREAMS.len()], is_line_open: false };
    let mut call = client.call("run", arguments).await?;
    loop {
        let result = match watched.follow(call, interrupts).await? {
            Some(answer) => result_of(answer)?,
            // The run ends without this process.
            None => return Ok(watched.ended(json!({ "outcome": "cancelled" }))),
        };
        watched.learn(result["run_id"].as_str());
        if result["outcome"] != "running" {
            watched.show_rest(&result).await;
            return Ok(watched.ended(result));
        }
        let run_id = watched.run_id.clone().ok_or(ClientError::Nonsense("a run without an id"))?;
        call = client.call("wait", json!({ "run_id": run_id, "timeout_ms": WAIT_MS })).await?;
    }
}

/// The structured content for every outcome of a run. A call without a run is an error.
fn result_of(mut answer: Value) -> Result<Value, ClientError> {
    if answer["structuredContent"]["outcome"].is_string() {
        return Ok(answer["structuredContent"].take());
    }
    crate::client::structured(answer)
}

struct Watched<'a> {
    client: &'a Client,
    /// Where output is shown, if it is.
    screen: Option<Screen>,
    run_id: Option<String>,
    /// How much of each stream was shown.
    offsets: [u64; STREAMS.len()],
    is_line_open: bool,
}

impl Watched<'_> {
    fn ended(&self, result: Value) -> Ended {
        Ended { result, is_line_open: self.is_line_open }
    }

    fn show(&mut self, stream: Stream, text: &str) {
        if let Some(screen) = &mut self.screen {
            screen.show(stream, text.as_bytes());
        }
        self.is_line_open = text.bytes().next_back().map_or(self.is_line_open, |last| last != b'\n');
    }

    fn learn(&mut self, run_id: Option<&str>) {
        if self.run_id.is_none() {
            self.run_id = run_id.map(str::to_owned);
        }
    }

    /// The answer of the call, or `None` if the user interrupted and did not wait for it.
    async fn follow(
        &mut self,
        mut call: PendingCall,
        interrupts: &mut Interrupts,
    ) -> Result<Option<Value>, ClientError> {
        let mut is_cancelled = false;
        loop {
            let wish = tokio::select! {
                biased;
                news = call.next() => match news? {
                    News::Answer(answer) => return Ok(Some(answer)),
                    News::Progress { run_id } => {
                        self.learn(run_id.as_deref());
                        // Output that cannot be read now is read at the end; the run continues.
                        self.show_more().await.ok();
                        continue;
                    }
                },
                wish = interrupts.next() => wish,
            };
            if wish == Wish::End {
                return Err(ClientError::Interrupted);
            }
            let Some(run_id) = self.run_id.clone().filter(|_| !is_cancelled) else {
                return Ok(None);
            };
            is_cancelled = true;
            let cancel = self.client.call("wait", json!({ "run_id": run_id, "cancel": true })).await?;
            // The cancellation is only sent; the followed call reports the end.
            tokio::spawn(async move {
                let mut cancel = cancel;
                while let Ok(News::Progress { .. }) = cancel.next().await {}
            });
        }
    }

    /// Shows the output since the last call.
    async fn show_more(&mut self) -> Result<(), ClientError> {
        let Some(run_id) = self.run_id.clone().filter(|_| self.screen.is_some()) else { return Ok(()) };
        for (index, (name, stream)) in STREAMS.into_iter().enumerate() {
            loop {
                let offset = self.offsets[index];
                let part = self.client.log(&run_id, name, offset).await?;
                self.show(stream, &part.text);
                let is_stuck = part.next_offset <= offset;
                self.offsets[index] = part.next_offset;
                if part.at_end || is_stuck {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Shows the rest of the output from the answer if the answer has the complete output and nothing was
    /// shown before. It also uses the answer if the log cannot be read, because a lost log does not change
    /// the result.
    async fn show_rest(&mut self, result: &Value) {
        if self.screen.is_none() {
            return;
        }
        let is_new = self.offsets.iter().all(|offset| *offset == 0);
        if self.run_id.is_some() && !(is_new && result.get("truncated").is_none()) {
            let Err(error) = self.show_more().await else { return };
            complain(&format!("the rest of the output cannot be read: {error}"), None);
        }
        if self.offsets.iter().any(|offset| *offset > 0) {
            return;
        }
        for (name, stream) in STREAMS {
            self.show(stream, result[name].as_str().unwrap_or_default());
        }
    }
}

/// Tells which limits are other than asked for.
pub(crate) fn tell_clamps(result: &Value) {
    for clamp in result["clamped"].as_array().into_iter().flatten() {
        let limit = clamp["limit"].as_str().unwrap_or_default();
        complain(&words::clamped(limit, &clamp["given"].to_string(), &clamp["asked"].to_string()), None);
    }
}

impl Ended {
    /// The outcome by its name in the contract.
    pub(crate) fn outcome(&self) -> &str {
        self.result["outcome"].as_str().unwrap_or_default()
    }

    /// A failed program prints its own error. This explains what Palisade did to the run.
    pub(crate) fn explain(&self) {
        for warning in self.result["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            complain(&words::of_command_line(&format!("warning: {warning}")), None);
        }
        tell_clamps(&self.result);
        let outcome = self.outcome();
        if let ("failed", Some(signal)) = (outcome, self.signal()) {
            complain(&render::killed_by(signal), None);
        }
        let error = &self.result["error"];
        let remedy = error["remedy"].as_str().map(words::of_command_line);
        if matches!(outcome, "completed" | "failed") {
            if let Some(remedy) = remedy {
                complain(&remedy, None);
            }
            return;
        }
        let cause = error["cause"].as_str().map(|cause| format!(" ({cause})")).unwrap_or_default();
        let message = error["message"].as_str().map(|message| format!(": {message}{cause}"));
        let message = format!("{outcome}{}", message.unwrap_or_default());
        complain(&words::of_command_line(&message), remedy.as_deref());
    }

    fn signal(&self) -> Option<i32> {
        self.result["signal"].as_i64().and_then(|signal| i32::try_from(signal).ok())
    }

    /// The same exit status as `palisade run`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let of_program = match (self.result["exit_code"].as_u64(), self.result["signal"].as_u64()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(1),
            (None, Some(signal)) => u8::try_from(SIGNAL_BASE + signal).unwrap_or(u8::MAX),
            (None, None) => OWN_FAILURE,
        };
        ExitCode::from(match self.outcome() {
            "completed" | "failed" | "compile_failed" => of_program,
            "timed_out" => TIMED_OUT,
            "output_limit" => OUTPUT_LIMIT,
            "out_of_memory" | "disk_full" | "process_limit" => OTHER_LIMIT,
            "cancelled" => INTERRUPTED,
            "refused" => REFUSED,
            _ => OWN_FAILURE,
        })
    }
}
