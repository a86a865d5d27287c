//! Frames between a command and its run: a kind, a length and that many bytes.
//!
//! Both sides check a length before they buffer a byte. `palisade` uses this module for its side.

use std::io;

use engine::{Stream, WindowSize};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much standard input may be under way before the server reports that the program took some.
pub const WINDOW_BYTES: usize = 256 << 10;
/// The most data in one frame of a stream.
pub const PIECE_BYTES_MAX: usize = 64 << 10;
/// The longest frame: the arguments of a run, or its result.
const FRAME_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES: usize = 5;

/// From the command to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRun {
    /// The first frame: what to run, as JSON.
    Begin(Vec<u8>),
    /// Standard input, at most [`PIECE_BYTES_MAX`].
    Stdin(Vec<u8>),
    /// The end of standard input.
    StdinEnd,
    /// A new size of the window.
    Resize(WindowSize),
}

/// From the server to the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromRun {
    /// The run has this id.
    Began(String),
    /// Output of the program.
    Output(Stream, Vec<u8>),
    /// The program took this many bytes of standard input.
    Taken(u32),
    /// The program waits for standard input.
    InputWanted,
    /// The last frame: the structured result, as JSON.
    Ended(Vec<u8>),
}

/// A message that is sent as a frame.
pub trait Frame: Sized {
    /// The kind and the bytes.
    fn parts(&self) -> (u8, Vec<u8>);
    /// The message, or `None` if it is none.
    fn of_parts(kind: u8, bytes: Vec<u8>) -> Option<Self>;

    /// The frame as bytes.
    fn encode(&self) -> Vec<u8> {
        let (kind, bytes) = self.parts();
        let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
        frame.push(kind);
        frame.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        frame.extend_from_slice(&bytes);
        frame
    }
}

impl Frame for ToRun {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Begin(json) => (0, json.clone()),
            Self::Stdin(data) => (1, data.clone()),
            Self::StdinEnd => (2, Vec::new()),
            Self::Resize(WindowSize { rows, columns }) => {
                (3, [rows.to_le_bytes(), columns.to_le_bytes()].concat())
            }
        }
    }

    fn of_parts(kind: u8, bytes: Vec<u8>) -> Option<Self> {
        match (kind, bytes.as_slice()) {
            (0, _) => Some(Self::Begin(bytes)),
            (1, data) if data.len() <= PIECE_BYTES_MAX => Some(Self::Stdin(bytes)),
            (2, []) => Some(Self::StdinEnd),
            (3, &[a, b, c, d]) => {
                let (rows, columns) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
                Some(Self::Resize(WindowSize { rows, columns }))
            }
            _ => None,
        }
    }
}

impl Frame for FromRun {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Began(id) => (0, id.clone().into_bytes()),
            Self::Output(Stream::Stdout, data) => (1, data.clone()),
            Self::Output(Stream::Stderr, data) => (2, data.clone()),
            Self::Taken(bytes) => (3, bytes.to_le_bytes().to_vec()),
            Self::InputWanted => (4, Vec::new()),
            Self::Ended(json) => (5, json.clone()),
        }
    }

    fn of_parts(kind: u8, bytes: Vec<u8>) -> Option<Self> {
        match (kind, bytes.as_slice()) {
            (0, _) => String::from_utf8(bytes).ok().map(Self::Began),
            (1, _) => Some(Self::Output(Stream::Stdout, bytes)),
            (2, _) => Some(Self::Output(Stream::Stderr, bytes)),
            (3, &[a, b, c, d]) => Some(Self::Taken(u32::from_le_bytes([a, b, c, d]))),
            (4, []) => Some(Self::InputWanted),
            (5, _) => Some(Self::Ended(bytes)),
            _ => None,
        }
    }
}

/// Reads frames.
pub struct FrameReader<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames from there.
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new() }
    }

    /// The next message, or `None` at the end. The future can be dropped and called again.
    pub async fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    fn take<F: Frame>(&mut self) -> io::Result<Option<F>> {
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [kind, a, b, c, d] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(malformed());
        }
        if self.buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(HEADER_BYTES + length);
        let mut frame = std::mem::replace(&mut self.buffer, rest);
        F::of_parts(kind, frame.split_off(HEADER_BYTES)).ok_or_else(malformed).map(Some)
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame that is none")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read<F: Frame>(bytes: &[u8]) -> Vec<F> {
        let mut reader = FrameReader::new(bytes);
        let mut all = Vec::new();
        while let Some(message) = reader.next().await.unwrap() {
            all.push(message);
        }
        all
    }

    #[tokio::test]
    async fn what_is_sent_arrives() {
        let sent = [
            ToRun::Begin(b"{}".to_vec()),
            ToRun::Stdin(vec![0, 255]),
            ToRun::Resize(WindowSize { rows: 300, columns: 1 }),
            ToRun::StdinEnd,
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
        assert_eq!(read::<ToRun>(&bytes).await, sent);
        let sent = [
            FromRun::Began("run_1".to_owned()),
            FromRun::Output(Stream::Stdout, b"a".to_vec()),
            FromRun::Output(Stream::Stderr, b"b".to_vec()),
            FromRun::Taken(70_000),
            FromRun::InputWanted,
            FromRun::Ended(b"{}".to_vec()),
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
        assert_eq!(read::<FromRun>(&bytes).await, sent);
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error() {
        let giant = [&[1_u8][..], &u32::MAX.to_le_bytes()].concat();
        let long = ToRun::Stdin(vec![0; PIECE_BYTES_MAX + 1]).encode();
        let cut = ToRun::Stdin(vec![0; 9]).encode()[..8].to_vec();
        for bad in [giant, long, cut, vec![9, 0, 0, 0, 0], vec![3, 1, 0, 0, 0, 7]] {
            assert!(FrameReader::new(bad.as_slice()).next::<ToRun>().await.is_err(), "{bad:?}");
        }
    }
}
