//! The host's end of the wire: frames out, messages in, everything the guest says parsed as hostile.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use wire::{CHUNK_BYTES_MAX, FileEntry, FrameBuffer, FromGuest, ToGuest, VERSION};

use crate::driver::DriverEar;

const READ_BYTES: usize = 64 * 1024;
/// News that may wait while an answer is awaited.
const BACKLOG_MAX: usize = 256;
/// The number of every file request: they are made one at a time, and no process has it.
const FILES: u32 = 0;
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
    stream: OwnedReadHalf,
    /// News that came while an answer was awaited.
    backlog: VecDeque<FromGuest>,
    buffer: FrameBuffer,
    bytes: Box<[u8; READ_BYTES]>,
}

/// Messages to the guest.
pub(crate) struct GuestWriter {
    stream: OwnedWriteHalf,
}

/// Takes a sandbox's stream and waits for the guest's first word.
pub(crate) async fn connect(stream: StdUnixStream) -> Result<(GuestReader, GuestWriter), GuestError> {
    stream.set_nonblocking(true)?;
    let (read, write) = UnixStream::from_std(stream)?.into_split();
    let mut reader = GuestReader {
        stream: read,
        backlog: VecDeque::new(),
        buffer: FrameBuffer::default(),
        bytes: Box::new([0; READ_BYTES]),
    };
    match within(HELLO_PATIENCE, reader.next()).await? {
        FromGuest::Hello { version: VERSION } => Ok((reader, GuestWriter { stream: write })),
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
            match self.stream.read(self.bytes.as_mut_slice()).await? {
                0 => return Err(GuestError::Gone),
                count => self.buffer.extend(&self.bytes[..count]),
            }
        }
    }

    /// Waits until the driver of a process says that it is ready. What is said meanwhile waits for whoever listens next.
    pub(crate) async fn until_ready(&mut self, process: u32) -> Result<(), GuestError> {
        let mut ear = DriverEar::default();
        loop {
            let message = self.receive().await?;
            if let FromGuest::Control { process: from, data } = &message
                && *from == process
            {
                ear.hear(data);
            }
            self.keep(message)?;
            if ear.is_ready() {
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
            let stream: &UnixStream = self.stream.as_ref();
            match rustix::net::recv(stream, self.bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => self.buffer.extend(&self.bytes[..count]),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
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
        let frame = wire::encode(message).map_err(|_| GuestError::Protocol)?;
        within(ANSWER_PATIENCE, async { Ok(self.stream.write_all(&frame).await?) }).await
    }

    /// Sends as much of a frame as the guest takes now; safe to cancel.
    pub(crate) async fn write(&mut self, frame: &mut Vec<u8>) -> Result<(), GuestError> {
        let count = self.stream.write(frame).await?;
        frame.drain(..count);
        Ok(())
    }

    /// Bytes for a driver, in pieces.
    pub(crate) async fn control(&mut self, process: u32, bytes: &[u8]) -> Result<(), GuestError> {
        for piece in bytes.chunks(CHUNK_BYTES_MAX) {
            self.send(&ToGuest::Control { process, data: piece.to_vec() }).await?;
        }
        Ok(())
    }
}

/// Writes a file of the workspace and waits until it is there.
pub(crate) async fn put_file(
    reader: &mut GuestReader,
    writer: &mut GuestWriter,
    path: &str,
    content: &[u8],
) -> Result<(), GuestError> {
    let mut pieces = content.chunks(CHUNK_BYTES_MAX);
    let mut piece = pieces.next().unwrap_or_default();
    let mut append = false;
    loop {
        let data = piece.to_vec();
        writer.send(&ToGuest::PutFile { request: FILES, path: path.to_owned(), append, data }).await?;
        if reader.answer().await? != (FromGuest::Done { request: FILES }) {
            return Err(GuestError::Protocol);
        }
        match pieces.next() {
            Some(next) => (piece, append) = (next, true),
            None => return Ok(()),
        }
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
