//! The chain of this process: appends entries to its segments.
//!
//! ```text
//! usual ---- the disk is full ----> short: the reserve is released
//!   ^   allowed calls are recorded    |    allowed calls are refused; refusals and outcomes still have room
//!   +---- the reserve is back --------+
//! ```
//! An entry counts once write(2) has returned for its whole line; a part of a line is cut off again. [`super::Audit`]
//! holds the lock around it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use audit::{Checkpoint, Envelope, Hash, Head, LINE_BYTES_MAX, SigningKey, kind, line};
use serde_json::json;

use super::files::{ChainFolder, LOCK, RESERVE, chains, make_file, make_folder, random_hex};
use super::keys::{KeyFolder, rotation_to};
use crate::clock::unix_ms;

/// Space that is released when the disk is full: about two thousand entries.
const RESERVE_BYTES: u64 = 1 << 20;
/// Entries that wait for room on the disk.
const BACKLOG_MAX: usize = 1024;
/// How often a server with a full disk tries to take its reserve again.
const RESTORE_PAUSE: Duration = Duration::from_secs(1);

/// Whether an entry must be written or the call does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The call has an effect, so there must be room for what follows it too.
    BeforeEffect,
    /// Tells what happened; it waits if there is no room.
    AfterEffect,
}

/// An entry in the chain.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) seq: u64,
    pub(super) line: Vec<u8>,
}

/// A chain that is open for writing.
#[derive(Debug)]
pub(super) struct Chain {
    folder: ChainFolder,
    file: File,
    segment: u32,
    segment_bytes: u64,
    segment_bytes_max: u64,
    /// Whether a part of a line could not be cut off again.
    is_torn: bool,
    seq: u64,
    head: Hash,
    key: SigningKey,
    key_changed: Option<(u64, i64, i64)>,
    /// Entries since the last checkpoint.
    unsigned: u64,
    has_reserve: bool,
    tried_at: Option<Instant>,
    backlog: VecDeque<(&'static str, String)>,
    lost: u64,
    _lock: File,
    /// Lets a test fill the disk.
    #[cfg(test)]
    pub(super) room: Option<u64>,
}

impl Chain {
    /// Begins a chain in a new folder.
    pub(super) fn begin(audit: &Path, segment_bytes_max: u64, what: &str) -> io::Result<Self> {
        make_folder(audit)?;
        let keys = KeyFolder::new(audit);
        let key_changed = keys.changed();
        let key = keys.signing()?;
        let instance = format!("{:013}-{}", unix_ms(), random_hex(4)?);
        let previous = chains(audit)?.into_iter().rev().find_map(|chain| {
            let last = chain.last_line()?;
            let entry = Envelope::read(&last)?;
            let hash = Hash::of_entry(&entry.prev, &last);
            Some(json!({ "instance": chain.instance, "seq": entry.seq, "hash": hash }))
        });
        let folder = ChainFolder::new(audit, &instance);
        make_folder(&folder.path)?;
        let lock = make_file(&folder.path.join(LOCK))?;
        // A reader may hold it for a moment, to see whether somebody writes.
        lock.lock()?;
        let file = make_file(&folder.segment(1))?;
        let mut chain = Self {
            head: Hash::beginning(&instance),
            folder,
            file,
            segment: 1,
            segment_bytes: 0,
            segment_bytes_max,
            is_torn: false,
            seq: 0,
            key_changed: key_changed.or_else(|| keys.changed()),
            unsigned: 0,
            has_reserve: false,
            tried_at: None,
            backlog: VecDeque::new(),
            lost: 0,
            _lock: lock,
            #[cfg(test)]
            room: None,
            key,
        };
        let version = env!("CARGO_PKG_VERSION");
        let started = json!({
            "what": what, "version": version, "key": chain.key.public().to_string(), "previous": previous,
            "rotations": keys.rotations(),
        });
        chain.write(kind::STARTED, &started.to_string())?;
        Ok(chain)
    }

    pub(super) fn instance(&self) -> &str {
        &self.folder.instance
    }

    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// Entries since the last checkpoint.
    pub(super) fn unsigned(&self) -> u64 {
        self.unsigned
    }

    /// A handle of the segment, to bring it to the disk without holding up entries.
    pub(super) fn to_sync(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Appends an entry. The error of [`Need::AfterEffect`] is that it waits, or is lost if too many wait.
    pub(super) fn append(&mut self, kind: &'static str, data: String, need: Need) -> io::Result<Written> {
        match need {
            Need::BeforeEffect => {
                self.restore()?;
                let written = self.write(kind, &data);
                if written.as_ref().is_err_and(is_full) {
                    self.release();
                }
                written
            }
            Need::AfterEffect => {
                let written = self.flush().and_then(|()| self.write(kind, &data));
                let written = match written {
                    Err(error) if is_full(&error) && self.has_reserve => {
                        self.release();
                        self.flush().and_then(|()| self.write(kind, &data))
                    }
                    other => other,
                };
                if written.is_err() {
                    self.hold(kind, data);
                }
                written
            }
        }
    }

    fn hold(&mut self, kind: &'static str, data: String) {
        if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back((kind, data));
        } else {
            self.lost += 1;
        }
    }

    /// Writes what waited for room.
    fn flush(&mut self) -> io::Result<()> {
        while let Some((kind, data)) = self.backlog.pop_front() {
            if let Err(error) = self.write(kind, &data) {
                self.backlog.push_front((kind, data));
                return Err(error);
            }
        }
        if self.lost > 0 {
            let lost = json!({ "entries": self.lost }).to_string();
            self.write(kind::LOST, &lost)?;
            self.lost = 0;
        }
        Ok(())
    }

    /// Takes the reserve, if it is not there.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        if self.has_reserve {
            return self.flush();
        }
        let is_early = self.tried_at.is_some_and(|at| at.elapsed() < RESTORE_PAUSE);
        if is_early {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.tried_at = Some(Instant::now());
        #[cfg(test)]
        if self.room.is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let path = self.folder.path.join(RESERVE);
        let taken = make_file(&path).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES) {
                Err(rustix::io::Errno::OPNOTSUPP) => (&file).write_all(&vec![0; RESERVE_BYTES as usize]),
                other => other.map_err(io::Error::from),
            }
        });
        if let Err(error) = taken {
            fs::remove_file(&path).ok();
            return Err(error);
        }
        self.has_reserve = true;
        self.tried_at = None;
        self.flush()
    }

    fn release(&mut self) {
        tracing::error!(reason = "the disk of the state directory is full", "audit_reserve_released");
        self.has_reserve = false;
        self.tried_at = Some(Instant::now());
        // Its space is free even if the name cannot be removed.
        if let Ok(file) = fs::OpenOptions::new().write(true).open(self.folder.path.join(RESERVE)) {
            file.set_len(0).ok();
        }
        fs::remove_file(self.folder.path.join(RESERVE)).ok();
        #[cfg(test)]
        if let Some(room) = &mut self.room {
            *room += RESERVE_BYTES;
        }
    }

    fn write(&mut self, kind: &str, data: &str) -> io::Result<Written> {
        if self.is_torn {
            self.file.set_len(self.segment_bytes)?;
            self.is_torn = false;
        }
        if self.segment_bytes >= self.segment_bytes_max {
            self.file = make_file(&self.folder.segment(self.segment + 1))?;
            self.segment += 1;
            self.segment_bytes = 0;
        }
        let mut bytes = Vec::with_capacity(256 + data.len());
        let seq = self.seq + 1;
        let instance = &self.folder.instance;
        line(&mut bytes, &Head { seq, ms: unix_ms(), instance, kind, prev: &self.head }, data);
        if bytes.len() > LINE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the entry is too long"));
        }
        let hash = Hash::of_entry(&self.head, &bytes);
        bytes.push(b'\n');
        if let Err(error) = self.write_bytes(&bytes) {
            // A part of the line may have been written.
            self.is_torn = self.file.set_len(self.segment_bytes).is_err();
            return Err(error);
        }
        self.segment_bytes += bytes.len() as u64;
        (self.seq, self.head) = (seq, hash);
        self.unsigned += 1;
        bytes.pop();
        Ok(Written { seq, line: bytes })
    }

    #[cfg(not(test))]
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    #[cfg(test)]
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            if (bytes.len() as u64) > *room {
                self.file.write_all(&bytes[..bytes.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= bytes.len() as u64;
        }
        self.file.write_all(bytes)
    }

    /// Signs what the chain has reached, if something is new. Follows a rotation of the key first.
    pub(super) fn checkpoint(&mut self, keys: &KeyFolder) -> io::Result<()> {
        self.flush()?;
        if keys.changed() != self.key_changed {
            self.follow_rotation(keys)?;
        }
        self.sign()
    }

    fn sign(&mut self) -> io::Result<()> {
        if self.unsigned == 0 {
            return Ok(());
        }
        let instance = self.folder.instance.clone();
        let signed = Checkpoint { instance, seq: self.seq, hash: self.head, ms: unix_ms() };
        let data = json!({ "note": signed.sign(&self.key).to_string() });
        self.write(kind::CHECKPOINT, &data.to_string())?;
        self.unsigned = 0;
        Ok(())
    }

    fn follow_rotation(&mut self, keys: &KeyFolder) -> io::Result<()> {
        let changed = keys.changed();
        let key = keys.signing()?;
        if key.public() != self.key.public() {
            let Some(note) = rotation_to(key.public(), &keys.rotations()) else {
                tracing::error!("audit_key_replaced_without_rotation");
                self.key_changed = changed;
                return Ok(());
            };
            self.sign()?;
            let data = json!({ "note": note, "key": key.public().to_string() });
            self.write(kind::KEY_ROTATED, &data.to_string())?;
            self.key = key;
        }
        self.key_changed = changed;
        Ok(())
    }

    /// Ends the chain.
    pub(super) fn end(&mut self, keys: &KeyFolder) -> io::Result<()> {
        if self.has_reserve {
            // From here on the space serves the last entries.
            self.has_reserve = false;
            fs::remove_file(self.folder.path.join(RESERVE)).ok();
        }
        self.flush()?;
        self.write(kind::STOPPED, "{}")?;
        self.checkpoint(keys)?;
        self.file.sync_data()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
