//! Follows a run that this command is connected to: input goes to the program as it comes, output is shown as it comes.
//!
//! ```text
//! begin -> Began ... input -> Stdin (up to the window) / Output -> screen ... -> Ended
//! Ctrl-C: the run is cancelled by its id, or by disconnecting while its id is unknown; a second one does not wait
//! ```

use std::io::{self, Read};

use serde_json::{Value, json};
use service::attach::frame::{FromRun, PIECE_BYTES_MAX, ToRun, WINDOW_BYTES};
use tokio::sync::mpsc;

use super::interrupt::{Interrupts, Wish};
use super::live::{Ended, Show};
use crate::cli::screen::Screen;
use crate::client::attach::Attachment;
use crate::client::{Client, ClientError, News};
use engine::{Stream, WindowSize};

/// Pieces of standard input that are read ahead.
const AHEAD_MAX: usize = 1;

/// Standard input of this command, read to its end by a separate thread, because a blocking read cannot be cancelled.
pub(crate) fn own_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = vec![0_u8; PIECE_BYTES_MAX];
        loop {
            match stdin.read(&mut bytes) {
                Ok(count @ 1..) => {
                    if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    });
    receiver
}

/// A run to begin and to follow.
pub(crate) struct Attached<'a> {
    pub(crate) client: &'a Client,
    pub(crate) begin: Value,
    pub(crate) show: Show,
    pub(crate) interrupts: &'a mut Interrupts,
    /// New sizes of the window of a terminal.
    pub(crate) sizes: Option<mpsc::Receiver<WindowSize>>,
}

/// What is known of the run in progress.
struct Progress {
    attachment: Attachment,
    screen: Option<Screen>,
    run_id: Option<String>,
    is_line_open: bool,
    is_input_wanted: bool,
    is_cancelled: bool,
    /// Input that waits for the window.
    unsent: Vec<u8>,
    window: usize,
}

impl Attached<'_> {
    /// Follows the run to its end. `input` returns the next piece of input, and nothing at its end. It is told whether
    /// the program waits for input. Its futures may be dropped.
    pub(crate) async fn run(
        self,
        mut input: impl AsyncFnMut(bool) -> Option<Vec<u8>>,
    ) -> Result<Ended, ClientError> {
        let Self { client, begin, show, interrupts, mut sizes } = self;
        let screen = if let Show::Live(sequences) = show { Some(Screen::new(sequences)) } else { None };
        let mut progress = Progress {
            attachment: client.attach(&begin).await?,
            screen,
            run_id: None,
            is_line_open: false,
            is_input_wanted: false,
            is_cancelled: false,
            unsent: Vec::new(),
            window: WINDOW_BYTES,
        };
        let mut is_over = begin["input"] == "none";
        let is_echoed = begin["input"] == "prompted";
        loop {
            let wants_input = !is_over && progress.unsent.is_empty();
            tokio::select! {
                biased;
                message = progress.attachment.next() => {
                    if let Some(result) = progress.take(message?)? {
                        return Ok(progress.ended(result));
                    }
                }
                wish = interrupts.next() => {
                    if wish == Wish::End {
                        return Err(ClientError::Interrupted);
                    }
                    if !progress.cancel(client).await? {
                        // The run ends without this process.
                        return Ok(progress.ended(json!({ "outcome": "cancelled" })));
                    }
                }
                size = next_size(&mut sizes) => match size {
                    Some(size) => progress.tell(&ToRun::Resize(size)).await,
                    None => sizes = None,
                },
                piece = input(progress.is_input_wanted), if wants_input => {
                    progress.is_input_wanted = false;
                    // The terminal has shown what was typed, with its line end.
                    progress.is_line_open &= !is_echoed;
                    is_over = piece.is_none();
                    match piece {
                        Some(piece) => progress.unsent = piece,
                        None => progress.tell(&ToRun::StdinEnd).await,
                    }
                }
            }
            progress.send_input().await;
        }
    }
}

impl Progress {
    /// Sends a message. The run may be over, or refused: its result follows, and a broken connection is told by reading.
    async fn tell(&mut self, message: &ToRun) {
        self.attachment.send(message).await.ok();
    }

    /// Sends as much input as the window allows.
    async fn send_input(&mut self) {
        while !self.unsent.is_empty() && self.window > 0 {
            let count = self.unsent.len().min(self.window).min(PIECE_BYTES_MAX);
            let rest = self.unsent.split_off(count);
            let piece = std::mem::replace(&mut self.unsent, rest);
            self.window -= count;
            self.tell(&ToRun::Stdin(piece)).await;
        }
    }

    /// Handles a message. Returns the result, if it is the last one.
    fn take(&mut self, message: FromRun) -> Result<Option<Value>, ClientError> {
        match message {
            FromRun::Began(id) => self.run_id = Some(id),
            FromRun::Output(stream, data) => self.show(stream, &data),
            FromRun::Taken(bytes) => self.window = (self.window + bytes as usize).min(WINDOW_BYTES),
            FromRun::InputWanted => self.is_input_wanted = true,
            FromRun::Ended(json) => {
                let result = serde_json::from_slice(&json);
                return result.map(Some).map_err(|_| ClientError::Nonsense("it is not JSON"));
            }
        }
        Ok(None)
    }

    fn show(&mut self, stream: Stream, data: &[u8]) {
        if let Some(screen) = &mut self.screen {
            screen.show(stream, data);
        }
        self.is_line_open = data.last().map_or(self.is_line_open, |last| *last != b'\n');
    }

    /// Cancels the run, which then reports its end. Returns `false` if it is not waited for.
    async fn cancel(&mut self, client: &Client) -> Result<bool, ClientError> {
        let Some(run_id) = self.run_id.clone().filter(|_| !self.is_cancelled) else { return Ok(false) };
        self.is_cancelled = true;
        let mut cancel = client.call("wait", json!({ "run_id": run_id, "cancel": true })).await?;
        tokio::spawn(async move { while let Ok(News::Progress { .. }) = cancel.next().await {} });
        Ok(true)
    }

    fn ended(mut self, result: Value) -> Ended {
        if let Some(screen) = &mut self.screen {
            screen.end();
        }
        Ended { result, is_line_open: self.is_line_open }
    }
}

async fn next_size(sizes: &mut Option<mpsc::Receiver<WindowSize>>) -> Option<WindowSize> {
    match sizes {
        Some(sizes) => sizes.recv().await,
        None => std::future::pending().await,
    }
}
