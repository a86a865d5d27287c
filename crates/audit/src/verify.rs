//! Verifies one chain as a stream of segments and lines. Memory does not grow with the chain.
//!
//! ```text
//! new -> removal? -> (segment -> line* -> fragment?)* -> finish: report
//! ```
//! After a flaw, verification goes on from what the flawed line claims, so that one change is reported once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::entry::{Envelope, kind};
use crate::hash::Hash;
use crate::key::KeyRing;
use crate::note::{Note, NoteError};
use crate::report::{ChainReport, ChainState, Flaw, Gap};
use crate::statement::Removal;

/// The chain that a server found when it began its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Previous {
    /// Its name.
    pub instance: String,
    /// Its last entry at that time.
    pub seq: u64,
    /// The hash of that entry.
    pub hash: Hash,
}

impl Previous {
    /// Reads it from the first line of a chain.
    pub fn read(line: &[u8]) -> Option<Self> {
        let head = Envelope::read(line)?;
        let is_start = head.kind == kind::STARTED;
        let mut data = Envelope::data(line).filter(|_| is_start)?;
        serde_json::from_value(data.get_mut("previous")?.take()).ok()
    }
}

/// Verifies one chain.
#[derive(Debug)]
pub struct ChainVerifier {
    keys: KeyRing,
    removal: Option<Removal>,
    report: ChainReport,
    /// The number of the segment that is read, and of the line in it.
    segment: u32,
    line: u64,
    /// The entry before, unless verification has to begin anew.
    last: Option<(u64, Hash)>,
    /// Whether the segment is the first one, or others before it are missing.
    is_after_gap: bool,
    has_fragment: bool,
    has_end: bool,
    anchored: u64,
    lost: u64,
    /// Entries whose hash was named elsewhere, and what was found.
    watched: BTreeMap<u64, Option<Hash>>,
}

impl ChainVerifier {
    /// Verifies the chain of that name with these keys.
    pub fn new(instance: &str, keys: KeyRing) -> Self {
        let report = ChainReport {
            instance: instance.to_owned(),
            state: ChainState::Ended,
            entries: 0,
            checkpoints: 0,
            first_seq: 0,
            last_seq: 0,
            head: Hash::beginning(instance),
            first_ms: 0,
            last_ms: 0,
            flaws: Vec::new(),
            flaw_count: 0,
            gaps: Vec::new(),
        };
        Self {
            keys,
            removal: None,
            report,
            segment: 0,
            line: 0,
            last: None,
            is_after_gap: true,
            has_fragment: false,
            has_end: false,
            anchored: 0,
            lost: 0,
            watched: BTreeMap::new(),
        }
    }

    /// Remembers the hash of an entry, for [`Self::found`].
    pub fn watch(&mut self, seq: u64) {
        self.watched.insert(seq, None);
    }

    /// The hash of an entry that was watched, if it is there.
    pub fn found(&self, seq: u64) -> Option<Hash> {
        self.watched.get(&seq).copied().flatten()
    }

    /// A statement about removed segments.
    pub fn removal(&mut self, note: &str) {
        let opened = Note::parse(note).and_then(|note| Removal::open(&note, &self.keys));
        match opened {
            Ok(removal) if removal.instance == self.report.instance => self.removal = Some(removal),
            _ => self.report.add_flaw(Flaw::FalseRemoval),
        }
    }

    /// Begins a segment. Segments come in the order of their numbers.
    pub fn segment(&mut self, number: u32) {
        self.end_segment();
        let expected = self.segment + 1;
        if number != expected && self.segment != 0 {
            self.report.add_gap(Gap::NoSegments { from: expected, to: number.saturating_sub(1) });
            self.is_after_gap = true;
        }
        (self.segment, self.line) = (number, 0);
    }

    fn end_segment(&mut self) {
        if std::mem::take(&mut self.has_fragment) {
            self.report.add_flaw(Flaw::CutLine { segment: self.segment });
        }
    }

    /// Bytes after the last newline of the segment.
    pub fn fragment(&mut self) {
        self.has_fragment = true;
    }

    /// A line without its newline.
    pub fn line(&mut self, line: &[u8]) {
        self.line += 1;
        let Some(entry) = Envelope::read(line) else {
            self.report.add_flaw(Flaw::Unreadable { segment: self.segment, line: self.line });
            // What follows cannot be compared with it.
            self.last = self.last.map(|(seq, _)| (seq + 1, Hash([0; 32])));
            self.is_after_gap = true;
            return;
        };
        let is_foreign = entry.instance != self.report.instance;
        if is_foreign {
            self.report.add_flaw(Flaw::Foreign { seq: entry.seq });
        }
        self.check_link(&entry, is_foreign);
        let hash = Hash::of_entry(&entry.prev, line);
        if let Some(watched) = self.watched.get_mut(&entry.seq) {
            *watched = Some(hash);
        }
        match &*entry.kind {
            kind::CHECKPOINT => self.check_checkpoint(&entry, line),
            kind::STARTED => self.learn_rotations(line),
            kind::KEY_ROTATED => self.check_rotation(&entry, line),
            kind::LOST => self.lost += lost_in(line),
            _ => {}
        }
        self.has_end = entry.kind == kind::STOPPED || (self.has_end && entry.kind == kind::CHECKPOINT);
        if self.report.entries == 0 {
            (self.report.first_seq, self.report.first_ms) = (entry.seq, entry.ms);
        }
        self.report.entries += 1;
        (self.report.last_seq, self.report.last_ms, self.report.head) = (entry.seq, entry.ms, hash);
        self.last = Some((entry.seq, hash));
    }

    fn check_link(&mut self, entry: &Envelope<'_>, is_foreign: bool) {
        let is_after_gap = std::mem::take(&mut self.is_after_gap);
        match self.last {
            None => self.check_beginning(entry),
            Some((seq, _)) if is_after_gap => {
                if entry.seq <= seq {
                    self.report.add_flaw(Flaw::OutOfOrder { expected: seq + 1, found: entry.seq });
                }
            }
            Some((seq, _)) if entry.seq != seq + 1 => {
                self.report.add_flaw(Flaw::OutOfOrder { expected: seq + 1, found: entry.seq });
            }
            Some((_, hash)) if entry.prev != hash && !is_foreign => {
                self.report.add_flaw(Flaw::BrokenLink { seq: entry.seq });
            }
            Some(_) => {}
        }
    }

    fn check_beginning(&mut self, entry: &Envelope<'_>) {
        if entry.seq == 1 {
            if entry.prev != Hash::beginning(&self.report.instance) {
                self.report.add_flaw(Flaw::BrokenLink { seq: 1 });
            }
            return;
        }
        match &self.removal {
            Some(removal) if removal.through_seq + 1 == entry.seq && removal.hash == entry.prev => {
                self.report.add_gap(Gap::Retired { through_seq: removal.through_seq });
            }
            // A server was killed between the statement and the removal.
            Some(removal) if removal.through_seq >= entry.seq => {
                self.report.add_gap(Gap::Retired { through_seq: entry.seq - 1 });
            }
            _ => self.report.add_gap(Gap::NoBeginning { first_seq: entry.seq }),
        }
    }

    fn check_checkpoint(&mut self, entry: &Envelope<'_>, line: &[u8]) {
        let seq = entry.seq;
        let note = Envelope::data(line).as_ref().and_then(note_in);
        let opened = note.ok_or(NoteError::Malformed).and_then(|note| Checkpoint::open(&note, &self.keys));
        match opened {
            Ok(signed) => {
                let is_here = signed.instance == self.report.instance && signed.seq + 1 == seq;
                if is_here && signed.hash == entry.prev {
                    self.report.checkpoints += 1;
                    self.anchored = seq;
                } else {
                    self.report.add_flaw(Flaw::OtherHash { seq });
                }
            }
            Err(error) => self.report.add_flaw(flaw_of(error, seq)),
        }
    }

    /// Keys that earlier keys named as their successors. Those that no trusted key signed are of no use, and do no harm.
    fn learn_rotations(&mut self, line: &[u8]) {
        let data = Envelope::data(line).unwrap_or_default();
        let notes = data.get("rotations").and_then(Value::as_array);
        for note in
            notes.into_iter().flatten().filter_map(Value::as_str).filter_map(|note| Note::parse(note).ok())
        {
            self.keys.learn(&note);
        }
    }

    fn check_rotation(&mut self, entry: &Envelope<'_>, line: &[u8]) {
        let Some(note) = Envelope::data(line).as_ref().and_then(note_in) else {
            return self.report.add_flaw(Flaw::Malformed { seq: entry.seq });
        };
        if let Err(error) = crate::statement::Rotation::open(&note, &self.keys) {
            self.report.add_flaw(flaw_of(error, entry.seq));
        }
        self.keys.learn(&note);
    }

    /// The findings.
    pub fn finish(&mut self, state: ChainState) -> ChainReport {
        self.report.state = state;
        if std::mem::take(&mut self.has_fragment) {
            self.report.add_gap(Gap::HalfLine);
        }
        if self.report.entries == 0 {
            self.report.add_gap(Gap::Empty);
        } else {
            let after = self.report.last_seq.saturating_sub(self.anchored);
            if after > 0 {
                self.report.add_gap(Gap::NotAnchored { entries: after.min(self.report.entries) });
            }
            if !self.has_end {
                self.report.add_gap(Gap::NoEnd);
            }
        }
        if self.lost > 0 {
            self.report.add_gap(Gap::Lost { entries: self.lost });
        }
        self.report.clone()
    }
}

fn note_in(data: &Value) -> Option<Note> {
    Note::parse(data.get("note")?.as_str()?).ok()
}

fn lost_in(line: &[u8]) -> u64 {
    Envelope::data(line).and_then(|data| data.get("entries")?.as_u64()).unwrap_or(1)
}

fn flaw_of(error: NoteError, seq: u64) -> Flaw {
    match error {
        NoteError::Malformed => Flaw::Malformed { seq },
        NoteError::UnknownKey(key) => Flaw::UnknownKey { seq, key },
        NoteError::BadSignature => Flaw::BadSignature { seq },
    }
}
