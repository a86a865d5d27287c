//! The record of what runs reached: every decision about a connection passes [`ReachLog::note`].
//!
//! The file `egress.jsonl` in the state directory is bounded: at its maximum it becomes `egress.1.jsonl`, and the one
//! before is removed. It serves an operator who looks back; the counters serve monitoring.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{ALLOWED, Reached};
use crate::Caller;
use crate::audit::{Audit, Event};
use crate::clock;
use crate::result::RunError;

const FILE: &str = "egress.jsonl";
const EARLIER: &str = "egress.1.jsonl";
/// The largest file; there are at most two.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// When a decision is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It was made, and has had no effect yet.
    Decided,
    /// The connection is over.
    Ended,
}

/// A decision about a connection.
#[derive(Debug, Clone, Copy)]
pub struct ReachEvent<'a> {
    /// Whose run it is.
    pub caller: &'a Caller,
    /// The handle of the run, if it has one.
    pub run_id: Option<&'a str>,
    /// Under which name of access it is allowed.
    pub access: Option<&'a str>,
    /// When it is told.
    pub stage: Stage,
    /// Host, address, bytes and verdict.
    pub reached: &'a Reached,
}

/// One line of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedReach {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// Whose run it was.
    pub principal: String,
    /// The handle of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Under which name of access it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Host, address, bytes and verdict.
    #[serde(flatten)]
    pub reached: Reached,
}

/// Records decisions, and counts them.
pub struct ReachLog {
    folder: PathBuf,
    audit: Option<Audit>,
    file: Mutex<Option<(File, u64)>>,
    allowed: AtomicU64,
    refused: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
}

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReachCounts {
    /// Connections that were opened and have ended.
    pub allowed: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Bytes that left sandboxes.
    pub bytes_out: u64,
    /// Bytes that entered sandboxes.
    pub bytes_in: u64,
}

impl ReachLog {
    /// The record of that state directory. The file is created with the first line.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.to_owned(),
            audit: None,
            file: Mutex::default(),
            allowed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
        }
    }

    /// The same record, whose decisions are in the audit as well.
    #[must_use]
    pub(crate) fn with_audit(self, audit: Audit) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// Every decision passes here: before its effect, and at the end of the connection. A refusal has no effect and comes
    /// once, as ended. A decision that cannot be recorded must have no effect.
    pub fn note(&self, event: &ReachEvent<'_>) -> Result<(), RunError> {
        let ReachEvent { caller, run_id, access, stage, reached } = *event;
        if let Some(audit) = &self.audit {
            let entry = entry(event);
            match stage {
                Stage::Decided => audit.note_before(entry)?,
                Stage::Ended => audit.note(entry),
            }
        }
        if stage == Stage::Decided {
            return Ok(());
        }
        let is_allowed = reached.verdict == ALLOWED;
        let counter = if is_allowed { &self.allowed } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        self.bytes_out.fetch_add(reached.bytes_out, Ordering::Relaxed);
        self.bytes_in.fetch_add(reached.bytes_in, Ordering::Relaxed);
        tracing::debug!(verdict = reached.verdict, access, "egress");
        let line = LoggedReach {
            at_ms: clock::unix_ms(),
            principal: caller.principal.as_str().to_owned(),
            run_id: run_id.map(str::to_owned),
            access: access.map(str::to_owned),
            reached: reached.clone(),
        };
        if let Err(error) = self.append(&line) {
            tracing::warn!(kind = %error.kind(), "egress_not_recorded");
        }
        Ok(())
    }

    /// The counters at this moment.
    pub fn counts(&self) -> ReachCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReachCounts {
            allowed: get(&self.allowed),
            refused: get(&self.refused),
            bytes_out: get(&self.bytes_out),
            bytes_in: get(&self.bytes_in),
        }
    }

    fn append(&self, line: &LoggedReach) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = file.as_ref().is_some_and(|(_, size)| *size + text.len() as u64 > FILE_BYTES_MAX);
        if is_full {
            fs::rename(self.folder.join(FILE), self.folder.join(EARLIER))?;
            *file = None;
        }
        let (file, size) = match &mut *file {
            Some(open) => open,
            none => {
                let path = self.folder.join(FILE);
                let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
                let size = opened.metadata()?.len();
                none.insert((opened, size))
            }
        };
        // One write for each line: several servers may append to one file.
        file.write_all(&text)?;
        *size += text.len() as u64;
        Ok(())
    }

    /// The newest lines of a state directory, oldest first.
    pub fn read(state_dir: &Path, limit: usize) -> io::Result<Vec<LoggedReach>> {
        let mut lines = std::collections::VecDeque::new();
        for name in [EARLIER, FILE] {
            let file = match File::open(state_dir.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).lines() {
                // A line that a killed server left half is skipped.
                let Ok(line) = serde_json::from_str(&line?) else { continue };
                lines.push_back(line);
                if lines.len() > limit {
                    lines.pop_front();
                }
            }
        }
        Ok(lines.into())
    }
}

/// A decision for the audit.
fn entry(event: &ReachEvent<'_>) -> Event {
    let ReachEvent { caller, run_id, access, stage, reached } = event;
    let kind = match stage {
        Stage::Decided => "egress_decided",
        Stage::Ended => "egress_ended",
    };
    let entry = Event::new(kind).by(caller).with("run_id", *run_id).with("access", *access);
    entry
        .with("host", reached.host.as_str())
        .with("address", reached.address.as_deref())
        .with("bytes_out", reached.bytes_out)
        .with("bytes_in", reached.bytes_in)
        .with("verdict", reached.verdict.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(host: &str, verdict: &str) -> Reached {
        let (host, verdict) = (host.to_owned(), verdict.to_owned());
        Reached { host, address: None, connections: 1, bytes_out: 3, bytes_in: 4, verdict }
    }

    #[test]
    fn ends_and_refusals_are_recorded_and_counted() {
        let folder = harness::TestFolder::new();
        let log = ReachLog::new(folder.path());
        let caller = Caller::local();
        for (stage, verdict) in
            [(Stage::Decided, ALLOWED), (Stage::Ended, ALLOWED), (Stage::Ended, "host_denied")]
        {
            let reached = reached("a.example:443", verdict);
            log.note(&ReachEvent {
                caller: &caller,
                run_id: Some("r"),
                access: None,
                stage,
                reached: &reached,
            })
            .unwrap();
        }
        let counts = log.counts();
        assert_eq!((counts.allowed, counts.refused, counts.bytes_out, counts.bytes_in), (1, 1, 6, 8));
        let lines = ReachLog::read(folder.path(), 10).unwrap();
        let verdicts: Vec<&str> = lines.iter().map(|line| line.reached.verdict.as_str()).collect();
        assert_eq!(verdicts, [ALLOWED, "host_denied"]);
        assert_eq!(ReachLog::read(folder.path(), 1).unwrap().len(), 1);
    }

    #[test]
    fn the_record_is_bounded() {
        let folder = harness::TestFolder::new();
        let log = ReachLog::new(folder.path());
        let caller = Caller::local();
        let reached = reached(&"x".repeat(100_000), "host_denied");
        for _ in 0..200 {
            let stage = Stage::Ended;
            log.note(&ReachEvent { caller: &caller, run_id: None, access: None, stage, reached: &reached })
                .unwrap();
        }
        let sizes: u64 =
            [FILE, EARLIER].iter().map(|name| fs::metadata(folder.path().join(name)).unwrap().len()).sum();
        assert!(sizes <= 2 * FILE_BYTES_MAX, "{sizes}");
    }
}
