//! The host's end of the wire: frames out, messages in, everything the guest says parsed as hostile.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wire::{CHUNK_BYTES_MAX, FileEntry, FrameBuffer, FromGuest, ToGuest, VERSION};

use crate::driver::DriverDecoder;
use crate::guest_stream::{self, ReadEnd, WriteEnd};

/// What is to be sent is collected up to this much before it leaves.
const QUEUED_BYTES_MAX: usize = 256 * 1024;
/// News that may wait while an answer is awaited.
const BACKLOG_MAX: usize = 256;
/// The number of every question about files: they are asked one at a time, and no process has it.
const FILES: u32 = 0;
/// The number of the files of a fresh sandbox, the first for one that lasts; no process has it.
pub(crate) const PLACED: u32 = 1 << 31;
/// A guest says hello at once.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Files are small or come in chunks; a guest that does not answer in this time is lost.
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
    #[error("talking to the guest failed")]
    Io(#[from] io::Error),
}

/// Messages from the guest.
pub(crate) struct GuestReader {
    stream: ReadEnd,
    /// News that came while an answer was awaited.
    backlog: VecDeque<FromGuest>,
    buffer: FrameBuffer,
}

/// Messages to the guest; several can be queued and leave together.
pub(crate) struct GuestWriter {
    stream: WriteEnd,
    queued: Vec<u8>,
}

/// Takes a sandbox's stream and waits for the guest's first word.
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
    /// The next message; safe to cancel, nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<FromGuest, GuestError> {
        match self.backlog.pop_front() {
            Some(message) => Ok(message),
            None => self.receive().await,
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

    /// Waits until the driver of a process says that it is ready. What is said meanwhile waits for whoever listens next.
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

    /// Whether all is still well with a guest that has nothing to do: takes in what has come, without waiting.
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

    /// Keeps news for later; the end of a process that was to wait is an error.
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

    /// Nothing is awaited for a while.
    pub(crate) fn settle(&mut self) {
        self.buffer.settle();
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
    }

    /// What the guest had sent before it was killed.
    pub(crate) async fn rest(&mut self) -> Option<FromGuest> {
        self.next().await.ok()
    }

    /// The answer to a file request; other news wait in the backlog.
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

    /// Has a message leave with the next that is sent.
    pub(crate) fn queue(&mut self, message: &ToGuest) -> Result<(), GuestError> {
        wire::encode_into(message, &mut self.queued).map_err(|_| GuestError::Protocol)
    }

    /// Sends what is queued.
    pub(crate) async fn flush(&mut self) -> Result<(), GuestError> {
        let queued = std::mem::take(&mut self.queued);
        within(ANSWER_PATIENCE, async { Ok(self.stream.write_all(&queued).await?) }).await
    }

    /// Sends what is queued without waiting; a guest that does not take all of it is not well.
    pub(crate) fn flush_now(&mut self) -> Result<(), GuestError> {
        let queued = std::mem::take(&mut self.queued);
        if self.stream.write_now(&queued)? == queued.len() { Ok(()) } else { Err(GuestError::Protocol) }
    }

    /// Whether something is queued.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Sends as much of what is queued as the guest takes now; safe to cancel. After an error nothing is queued any more.
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

    /// Sends as much of what is queued as the guest takes at once. An error is found out by [`Self::write_queued`].
    pub(crate) fn write_queued_now(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        if let Ok(count) = self.stream.write_now(&self.queued) {
            self.queued.drain(..count);
        }
    }

    /// Queues bytes for a driver, in pieces; they are dropped when one of those files could not be placed.
    pub(crate) fn control(&mut self, process: u32, after: u32, bytes: &[u8]) -> Result<(), GuestError> {
        bytes
            .chunks(CHUNK_BYTES_MAX)
            .try_for_each(|piece| self.queue(&ToGuest::Control { process, after, data: piece.to_vec() }))
    }

    /// Queues a file of the workspace. Nothing is waited for: should it be refused, the guest says so with `number`,
    /// and drops the orders that name it.
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
