//! Length-prefixed frames: the only place where bytes of the other side become messages.
//!
//! Called by `engine::guest_client` and `guest`. Must hold: memory used while reading is bounded by one frame
//! plus one read, whatever the peer sends. Does no I/O: callers feed bytes in and take messages out.

use serde::{Serialize, de::DeserializeOwned};

/// The longest payload either side may send.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

pub(crate) const HEADER_BYTES: usize = 4;
/// How much is read at a time. It starts small and grows once the peer has sent more.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

/// Why a conversation cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The peer announced a frame longer than [`FRAME_BYTES_MAX`].
    #[error("frame of {announced} bytes is longer than the {FRAME_BYTES_MAX} allowed")]
    TooLong {
        /// The announced length.
        announced: usize,
    },
    /// The payload is not a message of this version.
    #[error("frame does not decode as a message")]
    Malformed,
    /// One of this side's messages does not fit a frame.
    #[error("message does not fit a frame")]
    Unencodable,
}

/// Encodes one message as a frame.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, WireError> {
    let mut frame = Vec::new();
    encode_into(message, &mut frame)?;
    Ok(frame)
}

/// Appends one message as a frame to others, so that several are sent together. After an error `frames` is
/// empty.
pub fn encode_into<M: Serialize>(message: &M, frames: &mut Vec<u8>) -> Result<(), WireError> {
    let mut all = std::mem::take(frames);
    let start = all.len() + HEADER_BYTES;
    all.resize(start, 0);
    let mut all = postcard::to_extend(message, all).map_err(|_| WireError::Unencodable)?;
    let payload_bytes = all.len() - start;
    if payload_bytes > FRAME_BYTES_MAX {
        return Err(WireError::Unencodable);
    }
    let header = u32::try_from(payload_bytes).map_err(|_| WireError::Unencodable)?.to_le_bytes();
    all[start - HEADER_BYTES..start].copy_from_slice(&header);
    *frames = all;
    Ok(())
}

/// Decodes one payload; trailing bytes make it malformed.
pub fn decode<M: DeserializeOwned>(payload: &[u8]) -> Result<M, WireError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Malformed),
    }
}

/// Collects bytes and returns whole messages.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// Adds bytes read from the peer. Call [`Self::next`] until it returns `None` before adding more.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.forget_taken();
        self.bytes.extend_from_slice(bytes);
    }

    /// The buffer to read into: the caller appends bytes from the peer. Call [`Self::next`] until it returns
    /// `None` first. A peer that is silent for long costs no more than a small buffer.
    pub fn room(&mut self) -> &mut Vec<u8> {
        let was_filled = !self.bytes.is_empty() && self.bytes.len() == self.bytes.capacity();
        self.forget_taken();
        if self.bytes.is_empty() && self.bytes.capacity() > READ_BYTES_MIN && !was_filled {
            self.bytes = Vec::new();
        }
        self.bytes.reserve(if was_filled { READ_BYTES_MAX } else { READ_BYTES_MIN });
        &mut self.bytes
    }

    /// Releases the buffer's memory if the buffer is empty.
    pub fn settle(&mut self) {
        self.forget_taken();
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Number of bytes that are not messages yet.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn forget_taken(&mut self) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Takes the next whole message, if there is one.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: it can fail and be fed again")]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, WireError> {
        let waiting = &self.bytes[self.start..];
        let Some((header, rest)) = waiting.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let announced = u32::from_le_bytes(*header) as usize;
        if announced > FRAME_BYTES_MAX {
            return Err(WireError::TooLong { announced });
        }
        let Some(payload) = rest.get(..announced) else {
            return Ok(None);
        };
        let message = decode(payload)?;
        self.start += HEADER_BYTES + announced;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exit, FromGuest, Stream, ToGuest};

    #[test]
    fn a_message_survives_the_wire_in_single_bytes() {
        let sent = FromGuest::Output { process: 7, stream: Stream::Stderr, data: "grüße".into() };
        let mut buffer = FrameBuffer::default();
        let mut got = None;
        for byte in encode(&sent).unwrap() {
            assert!(got.is_none());
            buffer.extend(&[byte]);
            got = buffer.next::<FromGuest>().unwrap();
        }
        assert_eq!(got, Some(sent));
    }

    #[test]
    fn two_messages_in_one_read_come_out_in_order() {
        let first = FromGuest::Exited { process: 1, exit: Exit::Code(3) };
        let second = FromGuest::Exited { process: 2, exit: Exit::Signal(9) };
        let mut buffer = FrameBuffer::default();
        buffer.extend(&[encode(&first).unwrap(), encode(&second).unwrap()].concat());
        assert_eq!(buffer.next().unwrap(), Some(first));
        assert_eq!(buffer.next().unwrap(), Some(second));
        assert_eq!(buffer.next::<FromGuest>().unwrap(), None);
    }

    #[test]
    fn an_announced_giant_is_refused_before_it_is_buffered() {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&u32::MAX.to_le_bytes());
        assert_eq!(buffer.next::<FromGuest>(), Err(WireError::TooLong { announced: u32::MAX as usize }));
    }

    #[test]
    fn a_message_too_long_for_a_frame_is_refused_by_the_sender() {
        let giant = ToGuest::Stdin { process: 0, after: 0, data: vec![0; FRAME_BYTES_MAX + 1] };
        assert_eq!(encode(&giant), Err(WireError::Unencodable));
    }

    #[test]
    fn frames_that_leave_together_arrive_one_by_one() {
        let sent = [ToGuest::KillRest, ToGuest::StdinEnd { process: 3 }, ToGuest::Shutdown];
        let mut frames = Vec::new();
        sent.iter().for_each(|message| encode_into(message, &mut frames).unwrap());
        let mut buffer = FrameBuffer::default();
        buffer.room().extend_from_slice(&frames);
        for message in sent {
            assert_eq!(buffer.next().unwrap(), Some(message));
        }
        assert_eq!(buffer.next::<ToGuest>().unwrap(), None);
    }

    #[test]
    fn a_buffer_grows_with_what_comes_and_shrinks_when_it_is_quiet() {
        let sent = FromGuest::Control { process: 1, data: vec![7; 60_000] };
        let frame = encode(&sent).unwrap();
        let mut buffer = FrameBuffer::default();
        let (mut rest, mut reads) = (frame.as_slice(), 0);
        while !rest.is_empty() {
            let room = buffer.room();
            let (piece, later) = rest.split_at(rest.len().min(room.capacity() - room.len()));
            room.extend_from_slice(piece);
            (rest, reads) = (later, reads + 1);
            let said = buffer.next::<FromGuest>().unwrap();
            assert_eq!(said.is_some(), rest.is_empty());
        }
        assert!(reads <= 4, "{reads} reads");
        buffer.room().extend_from_slice(&encode(&ToGuest::Shutdown).unwrap());
        assert!(buffer.next::<ToGuest>().unwrap().is_some());
        assert!(buffer.room().capacity() < 2 * READ_BYTES_MIN);
    }

    #[test]
    fn trailing_bytes_are_malformed() {
        let mut frame = encode(&ToGuest::Shutdown).unwrap();
        frame.push(0);
        assert_eq!(decode::<ToGuest>(&frame[4..]), Err(WireError::Malformed));
    }
}
