//! Checkpoints: the hash that a chain has reached, signed.
//!
//! ```text
//! palisade/audit/INSTANCE
//! 256
//! BASE64(hash of entry 256)
//! ms 1789000000000
//! ```
//! The form is that of C2SP checkpoints with one more line. The hash is that of a chain, not of a Merkle tree.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::Hash;
use crate::key::{KeyRing, SigningKey};
use crate::note::{Note, NoteError};

const ORIGIN: &str = "palisade/audit/";

/// What a checkpoint signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The chain.
    pub instance: String,
    /// The entry that it covers, with all entries before it.
    pub seq: u64,
    /// The hash of that entry.
    pub hash: Hash,
    /// When it was signed, in milliseconds since 1970.
    pub ms: u64,
}

impl Checkpoint {
    /// Signs it.
    pub fn sign(&self, key: &SigningKey) -> Note {
        let Self { instance, seq, hash, ms } = self;
        Note::sign(format!("{ORIGIN}{instance}\n{seq}\n{}\nms {ms}\n", STANDARD.encode(hash.0)), key)
    }

    /// Reads a checkpoint that a trusted key signed.
    pub fn open(note: &Note, keys: &KeyRing) -> Result<Self, NoteError> {
        Self::parse(note.open(keys)?).ok_or(NoteError::Malformed)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let instance = lines.next()?.strip_prefix(ORIGIN)?.to_owned();
        let seq = lines.next()?.parse().ok()?;
        let hash = Hash(STANDARD.decode(lines.next()?).ok()?.try_into().ok()?);
        let ms = lines.next()?.strip_prefix("ms ")?.parse().ok()?;
        lines.next().is_none().then_some(Self { instance, seq, hash, ms })
    }
}
