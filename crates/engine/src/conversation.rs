//! The conversation with a guest during one run: what it says, what it is told, what it leaves behind.
//!
//! Everything it says is hostile: output is kept up to a budget, a driver's words are only ever shown.

use std::time::Duration;

use tokio::sync::mpsc;
use wire::{CHUNK_BYTES_MAX, Exit, FileKind, FromGuest, STDIN_WINDOW_BYTES, Stream, ToGuest};

use crate::driver::DriverDecoder;
use crate::feed::Feed;
use crate::guest_client::{self, GuestReader, GuestWriter, PLACED};
use crate::output::Output;
use crate::result::Artifact;
use crate::run::RunEvent;
use crate::verdict::End;

/// The one program of a fresh run.
pub(crate) const MAIN: u32 = 1;
/// What makes its program ready.
pub(crate) const PREPARE: u32 = 2;
/// Files looked at after a run, and how much of them is brought back.
const ARTIFACTS_MAX: u32 = 4096;
const ARTIFACT_BYTES_MAX: usize = 64 << 20;
/// Files left out that are told one by one.
const LEFT_OUT_MAX: usize = 20;
/// What may still be read from a sandbox that was killed.
const REST_PATIENCE: Duration = Duration::from_millis(200);

/// The conversation with a guest during one run.
pub(crate) struct Session {
    pub(crate) reader: GuestReader,
    pub(crate) writer: GuestWriter,
    pub(crate) output: Output,
    pub(crate) decoder: DriverDecoder,
    /// Present until the program is ready and the driver was told to run it.
    pub(crate) preparation: Option<Preparation>,
    pub(crate) stdin: Feed,
    pub(crate) events: Option<mpsc::Sender<RunEvent>>,
    /// News that the caller has not taken yet; nothing more is read from the guest meanwhile.
    pub(crate) untold: Option<RunEvent>,
    /// A frame that the guest has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// How much standard input may still be sent before the guest says it was taken.
    pub(crate) unsent_window: usize,
}

/// A program that is being made ready.
pub(crate) struct Preparation {
    /// Whether the program runs only if this succeeds.
    pub(crate) is_required: bool,
    /// It did not; whatever is heard later changes nothing.
    pub(crate) is_refused: bool,
    /// What the driver will be told.
    pub(crate) order: Vec<u8>,
    pub(crate) decoder: DriverDecoder,
}

/// Hands news to the caller; safe to cancel. A caller that stopped listening still gets the result.
pub(crate) async fn tell(events: &Option<mpsc::Sender<RunEvent>>, untold: &mut Option<RunEvent>) {
    let place = match events {
        Some(sender) => sender.reserve().await.ok(),
        None => None,
    };
    if let (Some(news), Some(place)) = (untold.take(), place) {
        place.send(news);
    }
}

impl Session {
    /// Deals with one message; `Some` when it ends the run.
    pub(crate) fn take(&mut self, message: FromGuest) -> Option<End> {
        match message {
            FromGuest::Output { process: PREPARE, stream, data } => {
                let preparation = self.preparation.as_mut().filter(|_| stream == Stream::Stdout)?;
                preparation.decoder.feed(&data);
                let done = preparation.decoder.done()?;
                self.prepared(Exit::Code(done.exit_code))
            }
            FromGuest::Exited { process: PREPARE, exit } => self.prepared(exit),
            FromGuest::Failed { request: PREPARE, .. } => self.prepared(Exit::Code(127)),
            FromGuest::Output { stream, data, .. } => {
                let kept = self.output.keep(stream, &data);
                if self.events.is_some() && !kept.is_empty() {
                    self.untold = Some(RunEvent::Output { stream, data: kept.to_vec() });
                }
                self.output.overflowed.then_some(End::Output)
            }
            FromGuest::Control { data, .. } => {
                self.decoder.feed(&data);
                // Everything that it wrote was sent before this. What is left of it dies with its sandbox.
                self.decoder.leaving().map(|status| End::Program(Exit::Code(i32::from(status))))
            }
            FromGuest::StdinTaken { process: MAIN, bytes } => {
                self.unsent_window = (self.unsent_window + bytes as usize).min(STDIN_WINDOW_BYTES);
                None
            }
            FromGuest::Exited { process: MAIN, exit } => Some(End::Program(exit)),
            FromGuest::Failed { request: MAIN, errno, .. } => Some(End::NotStarted(errno)),
            FromGuest::Failed { request: PLACED, errno, .. } => Some(End::Unplaced(errno)),
            _ => None,
        }
    }

    /// Whether the program has not been heard of.
    pub(crate) fn is_silent(&self) -> bool {
        self.output.stdout.is_empty() && self.output.stderr.is_empty() && self.decoder.done().is_none()
    }

    /// The program is ready, or never will be.
    fn prepared(&mut self, exit: Exit) -> Option<End> {
        let preparation = self.preparation.as_mut().filter(|preparation| !preparation.is_refused)?;
        if preparation.is_required && exit != Exit::Code(0) {
            preparation.is_refused = true;
            return Some(End::Compile(exit));
        }
        for piece in self.preparation.take()?.order.chunks(CHUNK_BYTES_MAX) {
            let message = ToGuest::Control { process: MAIN, after: PLACED, data: piece.to_vec() };
            self.unsent.extend(wire::encode(&message).unwrap_or_default());
        }
        None
    }

    /// What a compiler would have written.
    pub(crate) fn tell_compile_failure(&mut self, source: &str) {
        let done = self.preparation.as_ref().and_then(|it| it.decoder.done()).unwrap_or_default();
        let Some(message) = done.error_message else { return };
        let place = |number: Option<u32>| number.map(|number| format!(":{number}")).unwrap_or_default();
        let text = format!("{source}{}{}: {message}\n", place(done.error_line), place(done.error_column));
        let data = text.into_bytes();
        self.take(FromGuest::Output { process: MAIN, stream: Stream::Stderr, data });
    }

    /// Makes the next piece of standard input ready to be sent.
    pub(crate) fn feed(&mut self, piece: Option<Vec<u8>>) {
        let message = match piece {
            Some(data) => {
                self.unsent_window = self.unsent_window.saturating_sub(data.len());
                ToGuest::Stdin { process: MAIN, after: PLACED, data }
            }
            None => ToGuest::StdinEnd { process: MAIN },
        };
        self.unsent = wire::encode(&message).unwrap_or_default();
    }

    /// Output that was on its way when the sandbox was killed.
    pub(crate) async fn read_rest(&mut self, end: End) {
        let read = async {
            tell(&self.events, &mut self.untold).await;
            if matches!(end, End::Program(_)) {
                return;
            }
            while let Some(message) = self.reader.rest().await {
                self.take(message);
                tell(&self.events, &mut self.untold).await;
            }
        };
        tokio::time::timeout(REST_PATIENCE, read).await.ok();
    }

    /// Files that the run made or changed, as far as they fit, and a word about those that do not.
    pub(crate) async fn collect(
        &mut self,
        inputs: &[crate::InputFile],
        source: &str,
    ) -> (Vec<Artifact>, Vec<String>) {
        // What the program left running must not write on, nor keep the guest waiting for a processor.
        self.writer.send(&ToGuest::KillRest).await.ok();
        let listed = guest_client::list_files(&mut self.reader, &mut self.writer, ARTIFACTS_MAX).await;
        let listed = listed.unwrap_or_default();
        let mut warnings = Vec::new();
        if listed.len() >= ARTIFACTS_MAX as usize {
            warnings.push(format!("only the first {ARTIFACTS_MAX} files were looked at"));
        }
        let mut room = ARTIFACT_BYTES_MAX;
        let mut artifacts = Vec::new();
        for entry in
            listed.into_iter().filter(|entry| entry.kind == FileKind::Regular && entry.path != source)
        {
            let left_out = |reason: &str| format!("{} was left out: {reason}", entry.path.escape_debug());
            if entry.size_bytes > room as u64 {
                warnings.push(left_out("it does not fit what is brought back from one run"));
                continue;
            }
            if !crate::request::is_plain_path(&entry.path) {
                warnings.push(left_out("its name is not plain text"));
                continue;
            }
            match guest_client::read_file(&mut self.reader, &mut self.writer, &entry.path, room).await {
                Ok(content)
                    if inputs.iter().any(|input| input.path == entry.path && input.content == content) => {}
                Ok(content) => {
                    room -= content.len().min(room);
                    artifacts.push(Artifact { path: entry.path, content });
                }
                Err(_) => warnings.push(left_out("it cannot be read")),
            }
            if warnings.len() > LEFT_OUT_MAX {
                break;
            }
        }
        (artifacts, warnings)
    }
}
