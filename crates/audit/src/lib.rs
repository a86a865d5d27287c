//! The audit chain of a server: the form of its entries, their hashes, signed checkpoints, receipts, verification.
//!
//! A chain is a sequence of lines, each one JSON object ([`Head`]). Each line names the hash of the line before it, so a
//! line cannot be changed, removed or moved without breaking the links after it. A checkpoint signs the hash that the
//! chain has reached ([`Checkpoint`]); a receipt signs what is known of one run and names its line ([`Receipt`]).
//! [`ChainVerifier`] reads lines as a stream and tells apart what was changed (*integrity*) and what is not there
//! (*completeness*).
//!
//! This crate is pure: it performs no I/O and reads no clock. `engine/audit` writes and reads the files.

mod checkpoint;
mod entry;
mod hash;
mod key;
mod note;
mod receipt;
mod report;
mod statement;
mod verify;
#[cfg(test)]
mod verify_tests;

pub use checkpoint::Checkpoint;
pub use entry::{Envelope, Head, LINE_BYTES_MAX, kind, line};
pub use hash::{Digest, Hash};
pub use key::{KEY_NAME, KeyError, KeyRing, PublicKey, SigningKey};
pub use note::{Note, NoteError};
pub use receipt::{Claims, Digests, FileDigest, NamedDigest, Receipt, ReceiptError};
pub use report::{ChainReport, ChainState, Flaw, Gap};
pub use statement::{Removal, Rotation};
pub use verify::{ChainVerifier, Previous};
