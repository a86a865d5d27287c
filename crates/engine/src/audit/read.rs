//! Reads the audit of a state directory, also while servers write it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use audit::{Envelope, Receipt, kind};

use super::files::{ChainFolder, Flow, chains, folder, read_lines};
use super::keys::KeyFolder;
use crate::result::RunError;

/// The most entries that [`tail`] returns.
const TAIL_MAX: usize = 10_000;

/// An entry as it was read. Nothing is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEntry {
    /// When it was written, in milliseconds since 1970.
    pub ms: u64,
    /// Its chain.
    pub instance: String,
    /// Its number.
    pub seq: u64,
    /// Its kind.
    pub kind: String,
    /// Its exact line.
    pub line: String,
}

impl ReadEntry {
    fn read(line: &[u8]) -> Option<Self> {
        let entry = Envelope::read(line)?;
        let (ms, instance, seq) = (entry.ms, entry.instance.into_owned(), entry.seq);
        let (kind, line) = (entry.kind.into_owned(), std::str::from_utf8(line).ok()?.to_owned());
        Some(Self { ms, instance, seq, kind, line })
    }

    /// What it says, by its kind.
    pub fn data(&self) -> serde_json::Value {
        let mut all: serde_json::Value = serde_json::from_str(&self.line).unwrap_or_default();
        all.get_mut("data").map(serde_json::Value::take).unwrap_or_default()
    }
}

/// Passes all entries of an audit folder that were written at this time or later: chain by chain, in their order.
pub fn entries(
    audit: &Path,
    since_ms: u64,
    take: &mut dyn FnMut(ReadEntry) -> io::Result<()>,
) -> io::Result<()> {
    for chain in chains_of(audit)? {
        for number in segments_of(&chain)? {
            let path = chain.segment(number);
            if is_older(&path, since_ms) {
                continue;
            }
            let read = read_lines(&path, 0, &mut |line| {
                if let Some(entry) = ReadEntry::read(line).filter(|entry| entry.ms >= since_ms) {
                    take(entry)?;
                }
                Ok(Flow::More)
            });
            // Retention may remove it meanwhile.
            unless_gone(read)?;
        }
    }
    Ok(())
}

/// The newest entries of an audit folder, the oldest of them first.
pub fn tail(audit: &Path, count: usize) -> io::Result<Vec<ReadEntry>> {
    let count = count.min(TAIL_MAX);
    let mut all = Vec::new();
    for chain in chains_of(audit)? {
        let mut newest: VecDeque<ReadEntry> = VecDeque::new();
        // From the newest segment back, until there are enough.
        for number in segments_of(&chain)?.into_iter().rev() {
            let mut found = VecDeque::new();
            let read = read_lines(&chain.segment(number), 0, &mut |line| {
                found.extend(ReadEntry::read(line));
                if found.len() > count {
                    found.pop_front();
                }
                Ok(Flow::More)
            });
            unless_gone(read)?;
            found.extend(newest);
            newest = found;
            if newest.len() >= count {
                break;
            }
        }
        all.extend(newest);
    }
    all.sort_by(|a, b| (a.ms, &a.instance, a.seq).cmp(&(b.ms, &b.instance, b.seq)));
    Ok(all.split_off(all.len().saturating_sub(count)))
}

/// Returns entries as they are written.
#[derive(Debug)]
pub struct Follower {
    audit: PathBuf,
    /// The segment of each chain, and how much of it was read.
    places: BTreeMap<String, (u32, u64)>,
}

impl Follower {
    /// Follows an audit folder from its end on.
    pub fn new(audit: &Path) -> io::Result<Self> {
        let mut places = BTreeMap::new();
        for chain in chains_of(audit)? {
            if let Some(number) = segments_of(&chain)?.pop() {
                let length = std::fs::metadata(chain.segment(number)).map_or(0, |found| found.len());
                places.insert(chain.instance, (number, length));
            }
        }
        Ok(Self { audit: audit.to_owned(), places })
    }

    /// Entries that were written since the last time.
    pub fn take_new(&mut self) -> io::Result<Vec<ReadEntry>> {
        let mut all = Vec::new();
        for chain in chains_of(&self.audit)? {
            let (from, offset) = self.places.get(&chain.instance).copied().unwrap_or((0, 0));
            for number in segments_of(&chain)?.into_iter().filter(|number| *number >= from) {
                let begin = if number == from { offset } else { 0 };
                let read = read_lines(&chain.segment(number), begin, &mut |line| {
                    all.extend(ReadEntry::read(line));
                    Ok(Flow::More)
                });
                if let Some(end) = unless_gone(read)? {
                    self.places.insert(chain.instance.clone(), (number, end.offset));
                }
            }
        }
        all.sort_by(|a, b| (a.ms, &a.instance, a.seq).cmp(&(b.ms, &b.instance, b.seq)));
        Ok(all)
    }
}

/// The newest checkpoint of an audit folder, as a signed note.
pub fn newest_checkpoint(audit: &Path) -> io::Result<Option<String>> {
    let mut newest: Option<(u64, String)> = None;
    // The newest chains first; a checkpoint of the tail is never far from the end.
    for chain in chains_of(audit)?.into_iter().rev() {
        for number in segments_of(&chain)?.into_iter().rev() {
            let mut last = None;
            let read = read_lines(&chain.segment(number), 0, &mut |line| {
                last = ReadEntry::read(line).filter(|entry| entry.kind == kind::CHECKPOINT).or(last.take());
                Ok(Flow::More)
            });
            unless_gone(read)?;
            if let Some(entry) = last {
                let note = entry.data().get("note").and_then(|note| note.as_str().map(str::to_owned));
                newest = note.map(|note| (entry.ms, note)).max(newest);
                break;
            }
        }
        if newest.is_some() && !chain.is_running() {
            break;
        }
    }
    Ok(newest.map(|(_, note)| note))
}

/// The signed receipt of any entry, such as a refused call: the entry alone, without what a run's receipt reveals.
pub fn entry_receipt(state_dir: &Path, instance: &str, seq: u64) -> Result<Option<String>, RunError> {
    let audit = folder(state_dir);
    let failed = |error: io::Error| super::unavailable(&error);
    let chain = chains_of(&audit).map_err(failed)?.into_iter().find(|chain| chain.instance == instance);
    let Some(chain) = chain else { return Ok(None) };
    let mut found = None;
    for number in segments_of(&chain).map_err(failed)? {
        let read = read_lines(&chain.segment(number), 0, &mut |line| match ReadEntry::read(line)
            .filter(|entry| entry.seq == seq)
        {
            Some(entry) => {
                found = Some(entry.line);
                Ok(Flow::Stop)
            }
            None => Ok(Flow::More),
        });
        unless_gone(read).map_err(failed)?;
    }
    let receipt = found.and_then(|line| Receipt::of(&line, None));
    let key = KeyFolder::new(&audit).signing().map_err(failed)?;
    Ok(receipt.map(|receipt| receipt.sign(&key).to_string()))
}

/// Chains, or none if nothing was recorded yet.
fn chains_of(audit: &Path) -> io::Result<Vec<ChainFolder>> {
    Ok(unless_gone(chains(audit))?.unwrap_or_default())
}

fn segments_of(chain: &ChainFolder) -> io::Result<Vec<u32>> {
    Ok(unless_gone(chain.segments())?.unwrap_or_default())
}

fn is_older(path: &Path, since_ms: u64) -> bool {
    let changed = std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.is_some_and(|age| age.as_millis() < u128::from(since_ms))
}

fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
