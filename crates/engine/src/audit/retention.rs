//! Retention: whole segments are removed, the oldest first, and the rest stays verifiable.
//!
//! Segments are removed from the beginning of a chain. A signed statement in its folder says which entries were removed
//! and which hash the first kept entry names. The last segment of a chain goes with its folder, once no process writes it.
//! The chain of the process that removes something has an entry about it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use audit::{Envelope, Hash, KeyRing, Note, Removal};
use serde_json::{Value, json};

use super::files::{
    ChainFolder, Flow, LOCK, REMOVED, RESERVE, chains, read_lines, read_small, replace_small,
};
use super::keys::KeyFolder;
use crate::clock::unix_ms;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditRetention {
    /// Segments whose last entry is older are removed.
    pub age_max: Duration,
    /// If all segments together are larger, the oldest are removed.
    pub bytes_max: u64,
}

impl Default for AuditRetention {
    fn default() -> Self {
        Self { age_max: Duration::from_millis(365 * DAY_MS), bytes_max: 1 << 30 }
    }
}

/// A segment that may be removed.
struct OldSegment {
    chain: ChainFolder,
    number: u32,
    is_last: bool,
    bytes: u64,
    changed_ms: u64,
}

/// Removes what is too old or too much. Returns what was removed, for the entry about it.
pub(super) fn retire(audit: &Path, keys: &KeyFolder, keep: AuditRetention) -> io::Result<Option<Value>> {
    // One process at a time; another one does it now.
    let lock =
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(audit.join("retention.lock"))?;
    if lock.try_lock().is_err() {
        return Ok(None);
    }
    release_reserves(audit)?;
    let mut all = old_segments(audit)?;
    all.sort_by_key(|segment| segment.changed_ms);
    let oldest_ms = unix_ms().saturating_sub(u64::try_from(keep.age_max.as_millis()).unwrap_or(u64::MAX));
    let mut total: u64 = all.iter().map(|segment| segment.bytes).sum();
    let mut removed: BTreeMap<String, Value> = BTreeMap::new();
    for segment in all {
        if segment.changed_ms >= oldest_ms && total <= keep.bytes_max {
            break;
        }
        // Only the beginning of a chain can go.
        let is_first = segment.chain.segments()?.first() == Some(&segment.number);
        if !is_first || (segment.is_last && segment.chain.is_running()) {
            continue;
        }
        total = total.saturating_sub(segment.bytes);
        let through = remove(&segment, keys)?;
        removed.insert(segment.chain.instance.clone(), through);
    }
    Ok((!removed.is_empty()).then(|| json!({ "removed": removed })))
}

/// Removes the reserves that killed processes left.
fn release_reserves(audit: &Path) -> io::Result<()> {
    for chain in chains(audit)? {
        let reserve = chain.path.join(RESERVE);
        if reserve.exists() && !chain.is_running() {
            fs::remove_file(reserve).or_else(absent)?;
        }
    }
    Ok(())
}

fn old_segments(audit: &Path) -> io::Result<Vec<OldSegment>> {
    let mut all = Vec::new();
    for chain in chains(audit)? {
        let numbers = chain.segments()?;
        for number in &numbers {
            let found = fs::metadata(chain.segment(*number))?;
            let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            all.push(OldSegment {
                chain: chain.clone(),
                number: *number,
                is_last: numbers.last() == Some(number),
                bytes: found.len(),
                changed_ms: u64::try_from(changed.as_millis()).unwrap_or(u64::MAX),
            });
        }
    }
    Ok(all)
}

fn remove(segment: &OldSegment, keys: &KeyFolder) -> io::Result<Value> {
    let OldSegment { chain, number, is_last, .. } = segment;
    let mut last = None;
    let path = chain.segment(*number);
    read_lines(&path, 0, &mut |line| {
        last = Envelope::read(line).map(|entry| (entry.seq, Hash::of_entry(&entry.prev, line))).or(last);
        Ok(Flow::More)
    })?;
    let (through_seq, hash) = last.unwrap_or((0, Hash::beginning(&chain.instance)));
    if *is_last {
        retire_chain(chain, (through_seq, hash), keys)?;
        for name in [REMOVED, RESERVE, LOCK] {
            fs::remove_file(chain.path.join(name)).or_else(absent)?;
        }
        fs::remove_file(&path)?;
        fs::remove_dir(&chain.path)?;
        return Ok(json!({ "through": through_seq, "hash": hash, "whole": true }));
    }
    // The statement comes first: without the segment it would be a gap that nobody explains.
    let statement = Removal { instance: chain.instance.clone(), through_seq, hash, ms: unix_ms() };
    replace_small(&chain.path.join(REMOVED), &statement.sign(&keys.signing()?).to_string())?;
    fs::remove_file(&path)?;
    Ok(json!({ "through": through_seq, "hash": hash, "whole": false }))
}

/// States in the folder of the audit that chains up to this one may be gone.
fn retire_chain(chain: &ChainFolder, (through_seq, hash): (u64, Hash), keys: &KeyFolder) -> io::Result<()> {
    let Some(audit) = chain.path.parent() else { return Ok(()) };
    let path = audit.join(REMOVED);
    let key = keys.signing()?;
    let trusted = KeyRing::new(keys.public()?);
    let known = read_small(&path).ok().and_then(|text| Note::parse(&text).ok());
    let known = known.and_then(|note| Removal::open(&note, &trusted).ok());
    if known.is_some_and(|known| known.instance >= chain.instance) {
        return Ok(());
    }
    let statement = Removal { instance: chain.instance.clone(), through_seq, hash, ms: unix_ms() };
    replace_small(&path, &statement.sign(&key).to_string())
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
