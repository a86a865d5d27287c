//! Length-prefixed frames: the only place where bytes of the other side become messages.
//!
//! Called by `engine::guest_client` and `guest`. Must hold: memory used while reading is bounded by one
//! frame plus one read, whatever the peer sends. Does no I/O: callers feed bytes in and take messages out.

use serde::{Serialize, de::DeserializeOwned};

/// The longest payload either side may send.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

const HEADER_BYTES: usize = 4;

/// Why a conversation cannot go on.
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
    /// A message of our own does not fit a frame.
    #[error("message does not fit a frame")]
    Unencodable,
}

/// Encodes one message as a frame.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, WireError> {
    let mut frame =
        postcard::to_extend(message, vec![0; HEADER_BYTES]).map_err(|_| WireError::Unencodable)?;
    let payload_bytes = frame.len() - HEADER_BYTES;
    if payload_bytes > FRAME_BYTES_MAX {
        return Err(WireError::Unencodable);
    }
    let header = u32::try_from(payload_bytes).map_err(|_| WireError::Unencodable)?.to_le_bytes();
    frame[..HEADER_BYTES].copy_from_slice(&header);
    Ok(frame)
}

/// Decodes one payload; trailing bytes make it malformed.
pub fn decode<M: DeserializeOwned>(payload: &[u8]) -> Result<M, WireError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Malformed),
    }
}

/// Collects bytes and gives back whole messages.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// Adds bytes read from the peer. Call [`Self::next`] until it gives `None` before adding more.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message, if one is there.
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
        let giant = ToGuest::Stdin { process: 0, data: vec![0; FRAME_BYTES_MAX + 1] };
        assert_eq!(encode(&giant), Err(WireError::Unencodable));
    }

    #[test]
    fn trailing_bytes_are_malformed() {
        let mut frame = encode(&ToGuest::Shutdown).unwrap();
        frame.push(0);
        assert_eq!(decode::<ToGuest>(&frame[4..]), Err(WireError::Malformed));
    }
}
