//! Frames and messages between the host and the guest inside a sandbox.
//!
//! The engine speaks this to every backend's byte stream; the guest answers it. Both sides parse the other
//! as hostile: a length is checked before a byte is buffered, a message that does not decode ends the
//! conversation, and nothing here allocates more than one frame ahead. No I/O happens in this crate.
//!
//! A frame is a little-endian `u32` length followed by that many bytes of a postcard-encoded message.

mod bytes;
#[cfg(any(test, fuzzing))]
pub mod checks;
mod frame;
#[cfg(test)]
mod hostile_tests;
mod message;
#[cfg(test)]
mod properties;

pub use frame::{FRAME_BYTES_MAX, FrameBuffer, WireError, decode, encode, encode_into};
pub use message::{
    CHUNK_BYTES_MAX, Exit, FailureKind, FileEntry, FileKind, Fork, FromGuest, LIST_ENTRIES_MAX, OpenProcess,
    PATH_BYTES_MAX, STDIN_WINDOW_BYTES, Stream, ToGuest, VERSION,
};
