//! What a verification found: *flaws* of integrity and *gaps* of completeness, apart.

use std::fmt;

use serde::Serialize;

use crate::hash::Hash;

/// Flaws and gaps that a report lists; further ones are counted.
pub(crate) const LISTED_MAX: usize = 32;

/// Something was changed: the chain is not what the server wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "flaw", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their numbers are")]
pub enum Flaw {
    /// A line is no entry.
    Unreadable { segment: u32, line: u64 },
    /// An entry is not the one that follows.
    OutOfOrder { expected: u64, found: u64 },
    /// An entry names another hash than that of the entry before it: one of the two was changed, or entries between them
    /// were removed.
    BrokenLink { seq: u64 },
    /// An entry belongs to another chain.
    Foreign { seq: u64 },
    /// The signature of a checkpoint or statement is false.
    BadSignature { seq: u64 },
    /// A checkpoint or statement was signed by a key that is not trusted.
    UnknownKey { seq: u64, key: String },
    /// A checkpoint is not in the expected form.
    Malformed { seq: u64 },
    /// A checkpoint signs another hash than that of the chain.
    OtherHash { seq: u64 },
    /// An entry of another chain, or a receipt or checkpoint that was kept elsewhere, names another hash.
    Contradicted { seq: u64, by: String },
    /// A segment that is not the last one ends within a line.
    CutLine { segment: u32 },
    /// The statement about removed segments is false.
    FalseRemoval,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { segment, line } => {
                write!(f, "line {line} of segment {segment:06} is no entry: it was changed")
            }
            Self::OutOfOrder { expected, found } => {
                write!(
                    f,
                    "entry {found} stands where entry {expected} belongs: entries were removed or moved"
                )
            }
            Self::BrokenLink { seq } => {
                write!(f, "entry {seq} does not follow from the one before it: one of the two was changed")
            }
            Self::Foreign { seq } => write!(f, "entry {seq} belongs to another chain"),
            Self::BadSignature { seq } => write!(f, "the signature of entry {seq} is false"),
            Self::UnknownKey { seq, key } => {
                write!(f, "entry {seq} was signed by the key {key}, which is not trusted")
            }
            Self::Malformed { seq } => write!(f, "entry {seq} is not in the form of a signed note"),
            Self::OtherHash { seq } => {
                write!(f, "the checkpoint in entry {seq} signs another chain than the one before it")
            }
            Self::Contradicted { seq, by } => write!(f, "entry {seq} is not the one that {by} names"),
            Self::CutLine { segment } => {
                write!(f, "segment {segment:06} ends within a line, and others follow")
            }
            Self::FalseRemoval => write!(f, "the statement about removed segments is false"),
        }
    }
}

/// Something is not there, or cannot be proved to be all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "gap", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their numbers are")]
pub enum Gap {
    /// Old segments were removed by retention. A signed statement says so, and the rest follows from it.
    Retired { through_seq: u64 },
    /// The beginning is missing, and no statement says why.
    NoBeginning { first_seq: u64 },
    /// Segments between others are missing.
    NoSegments { from: u32, to: u32 },
    /// Entries after the last checkpoint: if some were cut off, nobody could tell.
    NotAnchored { entries: u64 },
    /// The last line is half-written, as by a server that was killed. It was never acknowledged.
    HalfLine,
    /// The chain has no end: the server was killed or still runs, or the end was cut off.
    NoEnd,
    /// The server itself says that it could not write entries.
    Lost { entries: u64 },
    /// Something that was kept elsewhere names an entry that is not there: the end was cut off.
    Cut { seq: u64, by: String },
    /// The chain before this one is not there.
    NoPrevious { instance: String },
    /// The chain has no entry.
    Empty,
}

impl Gap {
    /// Whether the gap is stated with a signature, or is the usual state of a chain that is being written.
    pub fn is_explained(&self, state: ChainState) -> bool {
        match self {
            Self::Retired { .. } => true,
            Self::NotAnchored { .. } | Self::HalfLine | Self::NoEnd | Self::Empty => {
                state == ChainState::Running
            }
            _ => false,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retired { through_seq } => {
                write!(f, "entries 1 to {through_seq} were removed by retention, as a signed statement says")
            }
            Self::NoBeginning { first_seq } => {
                write!(
                    f,
                    "entries 1 to {} are missing, and no statement says why",
                    first_seq.saturating_sub(1)
                )
            }
            Self::NoSegments { from, to } if from == to => write!(f, "segment {from:06} is missing"),
            Self::NoSegments { from, to } => write!(f, "segments {from:06} to {to:06} are missing"),
            Self::NotAnchored { entries } => {
                write!(f, "{entries} entries follow the last checkpoint: a cut after them would not be seen")
            }
            Self::HalfLine => write!(f, "the last line is half-written; it was never acknowledged"),
            Self::NoEnd => {
                write!(f, "the chain has no end: its server was killed or still runs, or the end was cut off")
            }
            Self::Lost { entries } => write!(f, "the server could not write {entries} entries, and says so"),
            Self::Cut { seq, by } => {
                write!(f, "entry {seq}, which {by} names, is not there: the end was cut off")
            }
            Self::NoPrevious { instance } => write!(f, "the chain {instance} before this one is missing"),
            Self::Empty => write!(f, "there is no entry"),
        }
    }
}

/// Whether the server of a chain still writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainState {
    /// A server writes it.
    Running,
    /// No server is known to write it.
    Ended,
}

/// The findings about one chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// The chain.
    pub instance: String,
    /// Whether a server writes it.
    pub state: ChainState,
    /// Entries that were read.
    pub entries: u64,
    /// Checkpoints with a valid signature.
    pub checkpoints: u64,
    /// The first entry that is there.
    pub first_seq: u64,
    /// The last entry that is there.
    pub last_seq: u64,
    /// The hash of the last entry.
    pub head: Hash,
    /// When the first entry was written, in milliseconds since 1970.
    pub first_ms: u64,
    /// When the last entry was written.
    pub last_ms: u64,
    /// What breaks integrity.
    pub flaws: Vec<Flaw>,
    /// How many flaws there are, with those that are not listed.
    pub flaw_count: u64,
    /// What breaks completeness.
    pub gaps: Vec<Gap>,
}

impl ChainReport {
    /// Whether everything that is there is as the server wrote it.
    pub fn is_intact(&self) -> bool {
        self.flaw_count == 0
    }

    /// Whether nothing is missing without an explanation.
    pub fn is_complete(&self) -> bool {
        self.gaps.iter().all(|gap| gap.is_explained(self.state))
    }

    /// Adds a flaw that was found by a comparison with something outside of the chain.
    pub fn add_flaw(&mut self, flaw: Flaw) {
        self.flaw_count += 1;
        if self.flaws.len() < LISTED_MAX {
            self.flaws.push(flaw);
        }
    }

    /// Adds a gap that was found by a comparison with something outside of the chain.
    pub fn add_gap(&mut self, gap: Gap) {
        if self.gaps.len() < LISTED_MAX {
            self.gaps.push(gap);
        }
    }
}
