//! Frames: the only thing that passes between the two halves of the relay.
//!
//! A frame is a little-endian `u32` length, a kind, an id, and a payload. Calls and answers are split into
//! parts, so that a large one does not delay the frames of others. `link` writes frames and puts bodies
//! together again. Must hold: a length is checked before a byte of it is read.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest payload of a frame.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The longest call or answer.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
/// How many bytes of unfinished bodies one side keeps.
const UNFINISHED_BYTES_MAX: usize = 256 << 20;
/// Kind and id.
const HEAD_BYTES: usize = 9;

/// Names an object or an unanswered call. The client chooses it; an object has the id of the call that made it.
pub(crate) type Id = u64;

/// What one side tells the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    pub(crate) payload: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of a call or answer, and not the last one.
    Part,
    /// The last part of a call or answer.
    Body,
    /// The client no longer needs the object or the answer with this id.
    Forget,
    /// Bytes of a sandbox's stream.
    Data,
    /// So many bytes of the stream left this side; the payload is a `u32`.
    Taken,
    /// No further bytes of the stream follow.
    End,
    /// The stream is closed in both directions.
    Reset,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Part, Self::Body, Self::Forget, Self::Data, Self::Taken, Self::End, Self::Reset];
}

impl Frame {
    pub(crate) fn new(kind: Kind, id: Id, payload: Vec<u8>) -> Self {
        Self { kind, id, payload }
    }

    /// A frame without a payload.
    pub(crate) fn bare(kind: Kind, id: Id) -> Self {
        Self::new(kind, id, Vec::new())
    }

    /// A frame whose payload is a count.
    pub(crate) fn counting(kind: Kind, id: Id, count: usize) -> Self {
        Self::new(kind, id, u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes().to_vec())
    }

    /// The count in the payload.
    pub(crate) fn count(&self) -> io::Result<usize> {
        let bytes = self.payload.as_slice().try_into().map_err(|_| malformed("a count"))?;
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(malformed("a payload that is too long"));
        }
        let length = u32::try_from(HEAD_BYTES + self.payload.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(4 + HEAD_BYTES + self.payload.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.payload);
        Ok(bytes)
    }

    /// Reads the next frame; `None` where the stream ends between two frames.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut length = [0_u8; 4];
        match stream.read_exact(&mut length).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        };
        let length = u32::from_le_bytes(length) as usize;
        if !(HEAD_BYTES..=HEAD_BYTES + PAYLOAD_BYTES_MAX).contains(&length) {
            return Err(malformed("a length"));
        }
        let mut head = [0_u8; HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let [kind, id @ ..] = head;
        let kind = *Kind::ALL.get(usize::from(kind)).ok_or_else(|| malformed("a kind"))?;
        let mut payload = vec![0; length - HEAD_BYTES];
        stream.read_exact(&mut payload).await?;
        Ok(Some(Self { kind, id: u64::from_le_bytes(id), payload }))
    }
}

/// The frames of one call or answer.
pub(crate) fn parts(id: Id, body: &[u8]) -> impl Iterator<Item = Frame> {
    let last = body.len().saturating_sub(1) / PAYLOAD_BYTES_MAX;
    (0..=last).map(move |index| {
        let start = index * PAYLOAD_BYTES_MAX;
        let end = body.len().min(start + PAYLOAD_BYTES_MAX);
        let kind = if index == last { Kind::Body } else { Kind::Part };
        Frame::new(kind, id, body.get(start..end).unwrap_or_default().to_vec())
    })
}

/// Bodies of which not all parts have come.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    bodies: HashMap<Id, Vec<u8>>,
    bytes: usize,
}

impl Unfinished {
    /// Adds a part; returns the body if this was the last one.
    pub(crate) fn add(&mut self, frame: Frame) -> io::Result<Option<Vec<u8>>> {
        let is_last = frame.kind == Kind::Body;
        if is_last && !self.bodies.contains_key(&frame.id) {
            return Ok(Some(frame.payload));
        }
        let body = self.bodies.entry(frame.id).or_default();
        self.bytes += frame.payload.len();
        if body.len() + frame.payload.len() > BODY_BYTES_MAX || self.bytes > UNFINISHED_BYTES_MAX {
            return Err(malformed("a body that is too long"));
        }
        body.extend_from_slice(&frame.payload);
        Ok(if is_last { self.forget(frame.id) } else { None })
    }

    /// Removes what has come of a body.
    pub(crate) fn forget(&mut self, id: Id) -> Option<Vec<u8>> {
        let body = self.bodies.remove(&id)?;
        self.bytes -= body.len();
        Some(body)
    }
}

pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other half of the relay sent {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn every_kind_is_at_its_place() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }

    #[test]
    fn a_body_of_any_size_comes_out_as_it_went_in() {
        for size in [0, 1, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 3 * PAYLOAD_BYTES_MAX] {
            let body: Vec<u8> = (0..size).map(|index| index as u8).collect();
            let sent: Vec<u8> = parts(7, &body).flat_map(|frame| frame.encode().unwrap()).collect();
            let (mut rest, mut unfinished, mut got) = (sent.as_slice(), Unfinished::default(), None);
            while let Some(frame) = now(Frame::read(&mut rest)).unwrap() {
                assert!(got.is_none());
                got = unfinished.add(frame).unwrap();
            }
            assert_eq!(got, Some(body));
            assert_eq!((unfinished.bytes, unfinished.bodies.len()), (0, 0));
        }
    }

    #[test]
    fn lengths_and_kinds_that_do_not_exist_are_refused() {
        let long = u32::MAX.to_le_bytes();
        assert!(now(Frame::read(&mut long.as_slice())).is_err());
        let mut unknown = Frame::bare(Kind::Reset, 1).encode().unwrap();
        unknown[4] = 7;
        assert!(now(Frame::read(&mut unknown.as_slice())).is_err());
        let cut = &Frame::bare(Kind::Reset, 1).encode().unwrap()[..6];
        assert!(now(Frame::read(&mut &*cut)).is_err());
    }

    #[test]
    fn a_body_without_an_end_is_refused() {
        let mut unfinished = Unfinished::default();
        let part = Frame::new(Kind::Part, 1, vec![0; PAYLOAD_BYTES_MAX]);
        let most = BODY_BYTES_MAX / PAYLOAD_BYTES_MAX;
        assert!((0..most).all(|_| unfinished.add(part.clone()).is_ok()));
        assert!(unfinished.add(part).is_err());
    }
}
