//! Properties that must hold for every stream of a peer, including a hostile one.
//!
//! The seeded tests and the fuzz targets (`fuzz/`) call this module, so that both assert the same. It is
//! absent from the product.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::HEADER_BYTES;
use crate::{FRAME_BYTES_MAX, FrameBuffer, WireError, decode, encode};

/// Feeds a stream in pieces of the given size. Returns its messages and the error that ended it.
///
/// Asserts that nothing panics, that the piece size does not change the result, that at most one frame and
/// one piece are held, and that every message can be encoded again unchanged.
pub fn stream<M>(bytes: &[u8], piece_bytes: usize) -> (Vec<M>, Option<WireError>)
where
    M: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let in_pieces = feed::<M>(bytes, piece_bytes.max(1));
    let at_once = feed::<M>(bytes, bytes.len().max(1));
    assert_eq!(in_pieces, at_once, "pieces of {piece_bytes} bytes");
    for message in &in_pieces.0 {
        let frame = encode(message);
        let again = frame.as_ref().map(|frame| decode::<M>(&frame[HEADER_BYTES..]));
        assert!(matches!(&again, Ok(Ok(same)) if same == message), "{message:?} became {again:?}");
    }
    in_pieces
}

/// Feeds as the callers do: one piece, then messages until none is left.
fn feed<M: DeserializeOwned>(bytes: &[u8], piece_bytes: usize) -> (Vec<M>, Option<WireError>) {
    let mut buffer = FrameBuffer::default();
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        buffer.extend(piece);
        loop {
            match buffer.next::<M>() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(
            buffer.held_bytes() <= HEADER_BYTES + FRAME_BYTES_MAX + piece_bytes,
            "{}",
            buffer.held_bytes()
        );
    }
    (messages, None)
}
