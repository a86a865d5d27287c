//! Receipts: what is known of one run, signed, with its place in the chain.
//!
//! The entry of a run has no digests of code and output, because short contents could be guessed from them. It has a
//! *commitment*: the hash of the [`Claims`] and a random number. The receipt reveals both. So the chain proves later what
//! the server recorded when the run ended, and only the holder of the receipt learns it.
//!
//! A receipt of an entry of another kind, such as a refused call, has the entry alone.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::Envelope;
use crate::hash::{Digest, Hash};
use crate::key::{KeyRing, SigningKey};
use crate::note::{Note, NoteError};

const TITLE: &str = "palisade/receipt/v1";
/// Separates commitments from all other uses of SHA-256.
const COMMITMENT_DOMAIN: &[u8] = b"palisade receipt v1\n";

/// The digest of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Its path in the workspace.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256; absent if the file was too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The digest of a content without a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDigest {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: Digest,
}

impl NamedDigest {
    /// The digest of a content.
    pub fn of(content: &[u8]) -> Self {
        Self { bytes: content.len() as u64, sha256: Digest::of_content(content) }
    }
}

/// Digests of what went into a run and came out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    /// The program.
    pub code: NamedDigest,
    /// The arguments, variables and limits of the call, as a digest with a key of the server: the same for equal calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Standard input; absent if it arrived during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<NamedDigest>,
    /// Files that were placed before the run.
    pub inputs: Vec<FileDigest>,
    /// Standard output, as far as it was kept.
    pub stdout: NamedDigest,
    /// Standard error, as far as it was kept.
    pub stderr: NamedDigest,
    /// Files that the run made or changed.
    pub artifacts: Vec<FileDigest>,
}

/// What a receipt says of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// The run.
    pub run_id: String,
    /// Who called.
    pub principal: String,
    /// The language, if the server knows it.
    pub language: String,
    /// The persistent sandbox, if it ran in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// When the call arrived, in milliseconds since 1970.
    pub created_ms: u64,
    /// When the run ended.
    pub ended_ms: u64,
    /// How it ended.
    pub outcome: String,
    /// The code of its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The entry of the decision that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<u64>,
    /// The policy that bound the caller; empty if none did.
    pub policy: String,
    /// The rule that asked for an approval, or nothing: a call that no rule refuses is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The approval that let it pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// Digests.
    pub digests: Digests,
    /// The wall.
    pub wall: String,
    /// The guarantees of the wall as they were measured before the program was sent.
    pub isolation: Value,
    /// Hosts that the program reached outside.
    pub hosts_reached: Vec<String>,
}

impl Claims {
    /// What the chain has in place of these claims.
    pub fn commitment(claims: &Value, nonce: &Hash) -> Hash {
        Hash::of_parts(&[COMMITMENT_DOMAIN, &nonce.0, claims.to_string().as_bytes()])
    }
}

/// Why a receipt is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// Its signature or form.
    #[error("the receipt is not accepted: {0}")]
    Note(#[from] NoteError),
    /// Its parts contradict each other.
    #[error("the receipt contradicts the entry that it contains")]
    Contradiction,
    /// The chain has another entry at its place.
    #[error("the chain has another entry at the place that the receipt names")]
    OtherEntry,
}

/// A receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The chain.
    pub instance: String,
    /// The entry.
    pub seq: u64,
    /// The hash of the entry.
    pub hash: Hash,
    /// The exact line of the entry.
    pub entry: String,
    /// What is known of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Value>,
    /// The random number of the commitment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Hash>,
}

impl Receipt {
    /// The receipt of an entry; `None` if the line is no entry.
    pub fn of(entry: &str, claims: Option<(Value, Hash)>) -> Option<Self> {
        let read = Envelope::read(entry.as_bytes())?;
        let (instance, seq) = (read.instance.into_owned(), read.seq);
        let hash = Hash::of_entry(&read.prev, entry.as_bytes());
        let (claims, nonce) = claims.unzip();
        Some(Self { instance, seq, hash, entry: entry.to_owned(), claims, nonce })
    }

    /// Signs it.
    pub fn sign(&self, key: &SigningKey) -> Note {
        // Serializing text and numbers does not fail.
        let body = serde_json::to_string_pretty(self).unwrap_or_default();
        Note::sign(format!("{TITLE}\n{body}\n"), key)
    }

    /// Reads a receipt that a trusted key signed, and compares its parts.
    pub fn open(note: &Note, keys: &KeyRing) -> Result<Self, ReceiptError> {
        let (title, body) = note.open(keys)?.split_once('\n').ok_or(NoteError::Malformed)?;
        if title != TITLE {
            return Err(NoteError::Malformed.into());
        }
        let receipt: Self = serde_json::from_str(body).map_err(|_| NoteError::Malformed)?;
        if receipt.is_consistent() { Ok(receipt) } else { Err(ReceiptError::Contradiction) }
    }

    fn is_consistent(&self) -> bool {
        let Some(read) = Envelope::read(self.entry.as_bytes()) else { return false };
        let is_placed = read.instance == self.instance && read.seq == self.seq;
        if !is_placed || Hash::of_entry(&read.prev, self.entry.as_bytes()) != self.hash {
            return false;
        }
        match (&self.claims, &self.nonce) {
            (None, None) => true,
            (Some(claims), Some(nonce)) => {
                let data = Envelope::data(self.entry.as_bytes()).unwrap_or_default();
                let committed = data.get("commitment").and_then(Value::as_str).and_then(Hash::parse);
                committed == Some(Claims::commitment(claims, nonce))
            }
            _ => false,
        }
    }

    /// Compares it with the entry that the chain has at its place.
    pub fn check_place(&self, found: &Hash) -> Result<(), ReceiptError> {
        if *found == self.hash { Ok(()) } else { Err(ReceiptError::OtherEntry) }
    }
}
