//! Signed notes, in the form of C2SP (<https://c2sp.org/signed-note>): text, an empty line, signatures.
//!
//! ```text
//! text, one or several lines
//!
//! — palisade-audit BASE64(4 bytes of the key's hash, 64 bytes of signature)
//! ```
//! The first line of the text says what the note is, so that a signature of one kind is never taken for another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::key::{KEY_NAME, KeyRing, SigningKey};

const SIGNATURE_START: &str = "\u{2014} ";
const SIGNATURES_MAX: usize = 16;
const ID_BYTES: usize = 4;

/// A note whose signatures may be false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    /// The id of each key, and its signature.
    signatures: Vec<([u8; ID_BYTES], Vec<u8>)>,
}

/// Why a note is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It does not have the form of a signed note, or its text does not have the form of what it claims to be.
    #[error("it is not in the expected form")]
    Malformed,
    /// None of the trusted keys signed it.
    #[error("it was signed by the key {0}, which is not trusted")]
    UnknownKey(String),
    /// The signature of a trusted key is false.
    #[error("the signature is false")]
    BadSignature,
}

impl Note {
    /// Signs a text, which ends with a newline.
    pub fn sign(text: String, key: &SigningKey) -> Self {
        let signature = key.sign(text.as_bytes());
        Self { text, signatures: vec![(key.public().id(), signature)] }
    }

    /// Reads a note. Nothing is verified yet.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        let at = note.rfind("\n\n").ok_or(NoteError::Malformed)?;
        let (text, rest) = (&note[..=at], &note[at + 2..]);
        if text.chars().any(|c| c.is_control() && c != '\n') || !rest.ends_with('\n') {
            return Err(NoteError::Malformed);
        }
        let mut signatures = Vec::new();
        for line in rest.lines() {
            let line = line.strip_prefix(SIGNATURE_START).ok_or(NoteError::Malformed)?;
            let (name, signature) = line.split_once(' ').ok_or(NoteError::Malformed)?;
            let decoded = STANDARD.decode(signature).map_err(|_| NoteError::Malformed)?;
            let (id, signature) = decoded.split_first_chunk::<ID_BYTES>().ok_or(NoteError::Malformed)?;
            // Signatures of others, such as witnesses, are none of ours.
            if name == KEY_NAME {
                signatures.push((*id, signature.to_vec()));
            }
            if signatures.len() > SIGNATURES_MAX {
                return Err(NoteError::Malformed);
            }
        }
        if signatures.is_empty() {
            Err(NoteError::Malformed)
        } else {
            Ok(Self { text: text.to_owned(), signatures })
        }
    }

    /// The text, if a trusted key signed it.
    pub fn open(&self, keys: &KeyRing) -> Result<&str, NoteError> {
        let mut refused = NoteError::UnknownKey(self.signers());
        for (id, signature) in &self.signatures {
            for key in keys.keys().iter().filter(|key| key.id() == *id) {
                if key.verifies(self.text.as_bytes(), signature) {
                    return Ok(&self.text);
                }
                refused = NoteError::BadSignature;
            }
        }
        Err(refused)
    }

    fn signers(&self) -> String {
        let name = |id: &[u8; ID_BYTES]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.signatures.iter().map(|(id, _)| name(id)).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.text)?;
        for (id, signature) in &self.signatures {
            let mut signed = id.to_vec();
            signed.extend_from_slice(signature);
            writeln!(f, "{SIGNATURE_START}{KEY_NAME} {}", STANDARD.encode(signed))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_opened_with_the_key_that_signed_it_only() {
        let (key, other) =
            (SigningKey::from_seed(&[1; 32]).unwrap(), SigningKey::from_seed(&[2; 32]).unwrap());
        let written = Note::sign("kind\nbody\n".to_owned(), &key).to_string();
        let note = Note::parse(&written).unwrap();
        let ring = |key: &SigningKey| KeyRing::new([key.public().clone()]);
        assert_eq!(note.open(&ring(&key)), Ok("kind\nbody\n"));
        assert_eq!(note.open(&ring(&other)), Err(NoteError::UnknownKey(key.public().id_text())));
        let edited = Note::parse(&written.replace("body", "bodY")).unwrap();
        assert_eq!(edited.open(&ring(&key)), Err(NoteError::BadSignature));
        assert_eq!(note.to_string(), written);
    }

    #[test]
    fn text_that_is_no_note_is_refused() {
        for bad in [
            "",
            "a\n",
            "a\n\n",
            "a\n\nb\n",
            "a\n\n\u{2014} palisade-audit x\n",
            "a\n\n\u{2014} other AAAAAAA=\n",
        ] {
            assert_eq!(Note::parse(bad), Err(NoteError::Malformed), "{bad:?}");
        }
    }
}
