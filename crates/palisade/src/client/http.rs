//! As much HTTP/1.1 as one request over a unix socket needs (RFC 9112).
//!
//! The only place that waits while a response is read is [`Response::fill`], which can be dropped without losing
//! a byte; all the rest looks at what has come. So a response can be read beside a person's Ctrl-C.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// It went well.
pub(crate) const OK: u16 = 200;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Raw bytes that wait to be taken.
const READ_BYTES: usize = 64 << 10;
/// The line with the size of a chunk.
const CHUNK_LINE_BYTES_MAX: usize = 1024;
const PIECE_BYTES: usize = 256 << 10;
/// A server that says nothing for so long is gone: it gives a sign of life every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The gate of every server knows this name.
const HOST: &str = "localhost";

/// What is sent.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) payload: Payload<'a>,
}

/// The body of a request.
pub(crate) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// A file of which exactly so much is sent, a piece at a time.
    File {
        file: File,
        size_bytes: u64,
    },
}

impl Payload<'_> {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size_bytes, .. } => *size_bytes,
        }
    }
}

/// What came back: a head, and a body that is still coming.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    stream: UnixStream,
    raw: Vec<u8>,
    framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// The head has not come.
    Unknown,
    Length {
        left: u64,
    },
    /// Before a line with a size, within a chunk, or before the line end after one.
    ChunkSize,
    Chunk {
        left: u64,
    },
    ChunkEnd,
    UntilClosed,
    Over,
}

enum Taken {
    Piece(Vec<u8>),
    Over,
    /// More must come first.
    Nothing,
}

/// Sends a request. The head of its response is read by [`Response::head`]: a server may let us wait for it.
pub(crate) async fn exchange(mut stream: UnixStream, request: Request<'_>) -> io::Result<Response> {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {HOST}\r\n", request.method, request.path);
    for (name, value) in request.headers {
        if value.bytes().chain(name.bytes()).any(|byte| byte.is_ascii_control()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a header with a control character"));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", request.payload.size_bytes()));
    let sent = async {
        stream.write_all(head.as_bytes()).await?;
        send(&mut stream, request.payload).await
    };
    if let Err(error) = sent.await {
        // A server that refuses does not take the rest, and says why before it closes.
        if error.kind() != io::ErrorKind::BrokenPipe && error.kind() != io::ErrorKind::ConnectionReset {
            return Err(error);
        }
    }
    let framing = Framing::Unknown;
    Ok(Response { status: 0, headers: Vec::new(), stream, raw: Vec::new(), framing })
}

async fn send(stream: &mut UnixStream, payload: Payload<'_>) -> io::Result<()> {
    let (file, size_bytes) = match payload {
        Payload::Bytes(bytes) => return stream.write_all(bytes).await,
        Payload::File { file, size_bytes } => (file, size_bytes),
    };
    let mut file = file.take(size_bytes);
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = size_bytes;
    while left > 0 {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter meanwhile"));
        }
        let written = tokio::time::timeout(SILENCE_MAX, stream.write_all(&piece[..count])).await;
        written.map_err(|_| silent())??;
        left -= count as u64;
    }
    Ok(())
}

impl Response {
    /// The first header of that name, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The next part of the body, or its end.
    pub(crate) async fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.head().await?;
        loop {
            match self.take()? {
                Taken::Piece(bytes) => return Ok(Some(bytes)),
                Taken::Over => return Ok(None),
                Taken::Nothing => {
                    if self.fill().await? == 0 {
                        return match std::mem::replace(&mut self.framing, Framing::Over) {
                            Framing::UntilClosed => Ok(None),
                            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer broke off")),
                        };
                    }
                }
            }
        }
    }

    /// The whole body, which must not be longer than that.
    pub(crate) async fn collect(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            if whole.len() + piece.len() > bytes_max {
                return Err(too_long());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.raw.reserve(READ_BYTES);
        let mut limited = (&mut self.stream).take(READ_BYTES as u64);
        tokio::time::timeout(SILENCE_MAX, limited.read_buf(&mut self.raw)).await.map_err(|_| silent())?
    }

    /// Waits for the head; may be dropped and asked again.
    pub(crate) async fn head(&mut self) -> io::Result<()> {
        if self.framing != Framing::Unknown {
            return Ok(());
        }
        let end = loop {
            if let Some(end) = find(&self.raw, b"\r\n\r\n") {
                break end;
            }
            if self.raw.len() > HEAD_BYTES_MAX {
                return Err(too_long());
            }
            if self.fill().await? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed without an answer",
                ));
            }
        };
        let rest = self.raw.split_off(end + 4);
        let head = std::mem::replace(&mut self.raw, rest);
        let head = String::from_utf8_lossy(&head);
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        self.status = status.ok_or_else(|| garbled("no status line"))?;
        self.headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        self.framing = match (self.header("transfer-encoding"), self.header("content-length")) {
            (Some(_), _) => Framing::ChunkSize,
            (None, Some(length)) => {
                Framing::Length { left: length.parse().map_err(|_| garbled("no length"))? }
            }
            (None, None) => Framing::UntilClosed,
        };
        Ok(())
    }

    /// Takes what can be taken of what has come.
    fn take(&mut self) -> io::Result<Taken> {
        loop {
            match self.framing {
                Framing::Over | Framing::Length { left: 0 } => return Ok(Taken::Over),
                Framing::Unknown => return Ok(Taken::Nothing),
                Framing::Chunk { left: 0 } => self.framing = Framing::ChunkEnd,
                _ if self.raw.is_empty() => return Ok(Taken::Nothing),
                Framing::UntilClosed => return Ok(Taken::Piece(std::mem::take(&mut self.raw))),
                Framing::Length { left } => {
                    let piece = self.take_up_to(left);
                    self.framing = Framing::Length { left: left - piece.len() as u64 };
                    return Ok(Taken::Piece(piece));
                }
                Framing::Chunk { left } => {
                    let piece = self.take_up_to(left);
                    self.framing = Framing::Chunk { left: left - piece.len() as u64 };
                    return Ok(Taken::Piece(piece));
                }
                Framing::ChunkEnd => {
                    if self.raw.len() < 2 {
                        return Ok(Taken::Nothing);
                    }
                    if !self.raw.starts_with(b"\r\n") {
                        return Err(garbled("a chunk longer than its size"));
                    }
                    self.raw.drain(..2);
                    self.framing = Framing::ChunkSize;
                }
                Framing::ChunkSize => {
                    let Some(end) = find(&self.raw, b"\r\n") else {
                        let is_fine = self.raw.len() <= CHUNK_LINE_BYTES_MAX;
                        return if is_fine { Ok(Taken::Nothing) } else { Err(garbled("no size of a chunk")) };
                    };
                    let line: Vec<u8> = self.raw.drain(..end + 2).collect();
                    let size = String::from_utf8_lossy(&line);
                    let size = size.split(';').next().unwrap_or_default().trim();
                    let left = u64::from_str_radix(size, 16).map_err(|_| garbled("no size of a chunk"))?;
                    // Trailers are of no interest; the connection closes behind them.
                    self.framing = if left == 0 { Framing::Over } else { Framing::Chunk { left } };
                }
            }
        }
    }

    fn take_up_to(&mut self, left: u64) -> Vec<u8> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.raw.len());
        let rest = self.raw.split_off(count);
        std::mem::replace(&mut self.raw, rest)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server has said nothing for a minute")
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is too long")
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer is not HTTP: {what}"))
}
