//! Frames and messages between the host and the guest inside a sandbox.
//!
//! The engine speaks this protocol over every backend's byte stream, and the guest answers it. Both sides
//! treat the other as hostile:
//!
//! - A length is checked before a byte is buffered.
//! - A message that does not decode ends the conversation.
//! - Nothing here allocates more than one frame ahead.
//!
//! This crate does no I/O. A frame is a little-endian `u32` length followed by that many bytes of a
//! postcard-encoded message.

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
    CHUNK_BYTES_MAX, Exit, FailureKind, FileEntry, FileKind, Fork, FromGuest, LINK_TAKEN_BYTES,
    LINK_WINDOW_BYTES, LINKS_MAX, LIST_ENTRIES_MAX, LISTENERS_MAX, ListenAt, OpenProcess, PATH_BYTES_MAX,
    STDIN_WINDOW_BYTES, Stream, ToGuest, VERSION, WindowSize,
};
