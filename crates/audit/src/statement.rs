//! Signed statements about a chain: the key was replaced, old segments were removed.

use crate::hash::Hash;
use crate::key::{KeyRing, PublicKey, SigningKey};
use crate::note::{Note, NoteError};

const ROTATION: &str = "palisade/audit-key-rotation/v1";
const REMOVAL: &str = "palisade/audit-removal/v1";

/// A key names its successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The successor.
    pub new: PublicKey,
    /// When, in milliseconds since 1970.
    pub ms: u64,
}

impl Rotation {
    /// Signs it with the key that is replaced.
    pub fn sign(&self, old: &SigningKey) -> Note {
        Note::sign(format!("{ROTATION}\n{}\nms {}\n", self.new, self.ms), old)
    }

    /// Reads a rotation that a trusted key signed.
    pub fn open(note: &Note, keys: &KeyRing) -> Result<Self, NoteError> {
        Self::parse(note.open(keys)?).ok_or(NoteError::Malformed)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != ROTATION {
            return None;
        }
        let new = PublicKey::parse(lines.next()?).ok()?;
        let ms = lines.next()?.strip_prefix("ms ")?.parse().ok()?;
        lines.next().is_none().then_some(Self { new, ms })
    }
}

/// The beginning of a chain was removed because it was too old or too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The chain.
    pub instance: String,
    /// The last entry that was removed.
    pub through_seq: u64,
    /// Its hash, which the first entry that is kept names.
    pub hash: Hash,
    /// When, in milliseconds since 1970.
    pub ms: u64,
}

impl Removal {
    /// Signs it.
    pub fn sign(&self, key: &SigningKey) -> Note {
        let Self { instance, through_seq, hash, ms } = self;
        Note::sign(format!("{REMOVAL}\n{instance}\nthrough {through_seq}\n{hash}\nms {ms}\n"), key)
    }

    /// Reads a statement that a trusted key signed.
    pub fn open(note: &Note, keys: &KeyRing) -> Result<Self, NoteError> {
        Self::parse(note.open(keys)?).ok_or(NoteError::Malformed)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != REMOVAL {
            return None;
        }
        let instance = lines.next()?.to_owned();
        let through_seq = lines.next()?.strip_prefix("through ")?.parse().ok()?;
        let hash = Hash::parse(lines.next()?)?;
        let ms = lines.next()?.strip_prefix("ms ")?.parse().ok()?;
        lines.next().is_none().then_some(Self { instance, through_seq, hash, ms })
    }
}
