//! The host's end of the wire: writes frames and reads messages.
//!
//! `Conversation`, the pool and the compiler use it to talk to a guest. Every message of the guest is parsed as
//! hostile input, and every wait for an answer is bounded.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wire::{CHUNK_BYTES_MAX, FileEntry, FrameBuffer, FromGuest, ToGuest, VERSION};

use crate::driver::DriverDecoder;
use crate::guest_stream::{self, ReadEnd, WriteEnd};

/// Outgoing messages are collected up to this size before they are sent.
const QUEUED_BYTES_MAX: usize = 256 * 1024;
/// The most messages that may wait while an answer is awaited.
const BACKLOG_MAX: usize = 256;
/// The request number of all questions about files. They are asked one at a time, and no process has this
/// number.
const FILES: u32 = 0;
/// The number of the placed files of a fresh sandbox, and the first such number of a persistent sandbox. No
/// process has it.
pub(crate) const PLACED: u32 = 1 << 31;
/// How long a guest may take to say hello. A healthy guest does so at once.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Files are small or arrive in chunks. A guest that does not answer within this time is lost.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// Why the conversation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error("the guest is gone")]
    Gone,
    #[error("the guest broke the protocol")]
    Protocol,
    #[error("the guest did not answer in time")]
    Silent,
    #[error("the guest refused a request (error number {errno})")]
    Refused { errno: i32 },
    #[error("the program could not be started (error number {errno})")]
    NotStarted { errno: i32 },
    #[error("{said}")]
    NotUnpacked { said: String },
    #[error("the guest could not listen for the program (error number {errno})")]
    Unlistened { errno: i32 },
    #[error("talking to the guest failed")]
    Io(#[from] io::Error),
}

/// Messages from the guest.
pub(crate) struct GuestReader {
    stream: ReadEnd,
    /// Messages that arrived while an answer was awaited.
    backlog: VecDeque<FromGuest>,
    buffer: FrameBuffer,
}

/// Messages to the guest. Several can be queued and sent together.
pub(crate) struct GuestWriter {
    stream: WriteEnd,
    queued: Vec<u8>,
}

/// Takes a sandbox's stream and waits for the guest's hello.
pub(crate) async fn connect(stream: UnixStream) -> Result<(GuestReader, GuestWriter), GuestError> {
    let (read, write) = guest_stream::split(stream)?;
    let mut reader = GuestReader { stream: read, backlog: VecDeque::new(), buffer: FrameBuffer::default() };
    match within(HELLO_PATIENCE, reader.next()).await? {
        FromGuest::Hello { version: VERSION } => {
            Ok((reader, GuestWriter { stream: write, queued: Vec::new() }))
        }
        _ => Err(GuestError::Protocol),
    }
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, GuestError>>,
) -> Result<T, GuestError> {
    tokio::time::timeout(patience, work).await.unwrap_or(Err(GuestError::Silent))
}

impl GuestReader {
    /// The next message. Cancel safe: no message is lost.
    pub(crate) async fn next(&mut self) -> Result<FromGuest, GuestError> {
        match self.backlog.pop_front() {
            Some(message) => Ok(message),
            None => self.receive().await,
        }
    }

    /// The next message after those that wait already.
    pub(crate) async fn next_new(&mut self) -> Result<FromGuest, GuestError> {
        self.receive().await
    }

    /// Keeps a message for the next run, unless too many wait already.
    pub(crate) fn keep_for_later(&mut self, message: FromGuest) {
        if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(message);
        }
    }

    async fn receive(&mut self) -> Result<FromGuest, GuestError> {
        loop {
            if let Some(message) = self.buffer.next().map_err(|_| GuestError::Protocol)? {
                return Ok(message);
            }
            if self.stream.read(self.buffer.room()).await? == 0 {
                return Err(GuestError::Gone);
            }
        }
    }

    /// Waits until the driver of a process reports that it is ready. Other messages wait in the backlog.
    pub(crate) async fn until_ready(&mut self, process: u32) -> Result<(), GuestError> {
        let mut decoder = DriverDecoder::default();
        loop {
            let message = self.receive().await?;
            if let FromGuest::Control { process: from, data } = &message
                && *from == process
            {
                decoder.feed(data);
            }
            self.keep(message)?;
            if decoder.is_ready() {
                return Ok(());
            }
        }
    }

    /// Whether an idle guest is still healthy. Takes the messages that have arrived, without waiting.
    pub(crate) fn is_well(&mut self) -> bool {
        loop {
            match self.buffer.next() {
                Ok(Some(message)) => match self.keep(message) {
                    Ok(()) => continue,
                    Err(_) => return false,
                },
                Ok(None) => {}
                Err(_) => return false,
            }
            match self.stream.read_now(self.buffer.room()) {
                Ok(Some(1..)) => {}
                Ok(None) => return true,
                _ => return false,
            }
        }
    }

    /// Keeps a message for later. The end of a process that should wait is an error.
    fn keep(&mut self, message: FromGuest) -> Result<(), GuestError> {
        match message {
            FromGuest::Exited { .. } => Err(GuestError::Gone),
            FromGuest::Failed { errno, .. } => Err(GuestError::NotStarted { errno }),
            news if self.backlog.len() < BACKLOG_MAX => {
                self.backlog.push_back(news);
                Ok(())
            }
            _ => Err(GuestError::Protocol),
        }
    }

    /// Releases unused buffer memory, because no message is expected for a while.
    pub(crate) fn settle(&mut self) {
        self.buffer.settle();
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
    }

    /// Returns the next message that the guest had sent before it was killed.
    pub(crate) async fn rest(&mut self) -> Option<FromGuest> {
        self.next().await.ok()
    }

    /// The answer to a file request. Other messages wait in the backlog.
    async fn answer(&mut self) -> Result<FromGuest, GuestError> {
        within(ANSWER_PATIENCE, async {
            loop {
                match self.receive().await? {
                    FromGuest::Failed { request: FILES, errno, .. } => {
                        return Err(GuestError::Refused { errno });
                    }
                    FromGuest::Failed { errno, .. } => return Err(GuestError::NotStarted { errno }),
                    message @ (FromGuest::Done { .. }
                    | FromGuest::Files { .. }
                    | FromGuest::FileData { .. }) => {
                        return Ok(message);
                    }
                    news if self.backlog.len() < BACKLOG_MAX => self.backlog.push_back(news),
                    _ => return Err(GuestError::Protocol),
                }
            }
        })
        .await
    }
}

impl GuestWriter {
    pub(crate) async fn send(&mut self, message: &ToGuest) -> Result<(), GuestError> {
        self.queue(message)?;
        self.flush().await
    }

    /// Queues a message. It leaves with the next send.
    pub(crate) fn queue(&mut self, message: &ToGuest) -> Result<(), GuestError> {
        wire::encode_into(message, &mut self.queued).map_err(|_| GuestError::Protocol)
    }

    /// Sends the queued messages.
    pub(crate) async fn flush(&mut self) -> Result<(), GuestError> {
        let queued = std::mem::take(&mut self.queued);
        within(ANSWER_PATIENCE, async { Ok(self.stream.write_all(&queued).await?) }).await
    }

    /// Sends the queued messages without waiting. Fails if the guest does not take all of them.
    pub(crate) fn flush_now(&mut self) -> Result<(), GuestError> {
        let queued = std::mem::take(&mut self.queued);
        if self.stream.write_now(&queued)? == queued.len() { Ok(()) } else { Err(GuestError::Protocol) }
    }

    /// Whether messages are queued.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// How much is queued.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued.len()
    }

    /// Sends as much of the queue as the guest takes now. Cancel safe. After an error the queue is empty.
    pub(crate) async fn write_queued(&mut self) -> Result<(), GuestError> {
        match self.stream.write(&self.queued).await {
            Ok(count) => {
                self.queued.drain(..count);
                Ok(())
            }
            Err(error) => {
                self.queued = Vec::new();
                Err(error.into())
            }
        }
    }

    /// Sends as much of the queue as the guest takes at once. The next waiting send reports an error.
    pub(crate) fn write_queued_now(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        if let Ok(count) = self.stream.write_now(&self.queued) {
            self.queued.drain(..count);
        }
    }

    /// Queues bytes for a driver, in pieces. The guest drops them when one of the files with the number `after`
    /// could not be placed.
    pub(crate) fn control(&mut self, process: u32, after: u32, bytes: &[u8]) -> Result<(), GuestError> {
        bytes
            .chunks(CHUNK_BYTES_MAX)
            .try_for_each(|piece| self.queue(&ToGuest::Control { process, after, data: piece.to_vec() }))
    }

    /// Queues a file for the workspace, without waiting for an answer. If the guest cannot place it, it reports
    /// `number` and drops the orders that name it.
    pub(crate) async fn put_file(
        &mut self,
        number: u32,
        path: &str,
        content: &[u8],
    ) -> Result<(), GuestError> {
        let first = content.chunks(CHUNK_BYTES_MAX).next().unwrap_or_default();
        let rest = content.chunks(CHUNK_BYTES_MAX).skip(1).map(|piece| (piece, true));
        for (piece, append) in std::iter::once((first, false)).chain(rest) {
            let (path, data) = (path.to_owned(), piece.to_vec());
            self.queue(&ToGuest::PutFile { request: number, path, append, data })?;
            if self.queued.len() >= QUEUED_BYTES_MAX {
                self.flush().await?;
            }
        }
        Ok(())
    }
}

/// Lists the workspace.
pub(crate) async fn list_files(
    reader: &mut GuestReader,
    writer: &mut GuestWriter,
    entries_max: u32,
) -> Result<Vec<FileEntry>, GuestError> {
    writer.send(&ToGuest::ListFiles { request: FILES, entries_max }).await?;
    let mut found = Vec::new();
    loop {
        match reader.answer().await? {
            FromGuest::Files { entries, .. } => found.extend(entries),
            FromGuest::Done { .. } => return Ok(found),
            _ => return Err(GuestError::Protocol),
        }
        if found.len() > entries_max as usize {
            return Err(GuestError::Protocol);
        }
    }
}

/// Reads a file of the workspace, at most `bytes_max`.
pub(crate) async fn read_file(
    reader: &mut GuestReader,
    writer: &mut GuestWriter,
    path: &str,
    bytes_max: usize,
) -> Result<Vec<u8>, GuestError> {
    let mut content = Vec::new();
    loop {
        let bytes = u32::try_from((bytes_max - content.len()).min(CHUNK_BYTES_MAX)).unwrap_or(0);
        if bytes == 0 {
            return Ok(content);
        }
        let offset = content.len() as u64;
        writer.send(&ToGuest::ReadFile { request: FILES, path: path.to_owned(), offset, bytes }).await?;
        let FromGuest::FileData { data, .. } = reader.answer().await? else {
            return Err(GuestError::Protocol);
        };
        if data.is_empty() || data.len() > bytes as usize {
            return Ok(content);
        }
        content.extend(data);
    }
}
