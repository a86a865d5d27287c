//! One sandbox that lasts, as this server knows it: its record, its place on disk, whose turn it is.
//!
//! Runs take turns, in the order in which they came. While a server uses a sandbox it holds a lock on its folder, so
//! that another server of the same state directory does not wake it a second time; the kernel drops the lock with
//! the process.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use sandbox::{LastingWorkspace, Limits};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot, watch};

use super::id::SandboxId;
use super::living::Living;
use crate::clock;
use crate::principal::Principal;
use crate::result::RunError;
use crate::run::{OWN_FILES, Stop};
use crate::unstarted::Unstarted;
use crate::workspace::{Owner, Quota, Workspace};

/// Runs that wait for their turn in one sandbox.
const QUEUE_MAX: usize = 16;
const RETRY_MS: u64 = 500;
const LOCK: &str = "lock";
const WORKSPACE: &str = "workspace";

/// A sandbox as the store keeps it.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRecord {
    pub(crate) id: SandboxId,
    pub(crate) principal: Principal,
    pub(crate) name: String,
    pub(crate) identity: u32,
    pub(crate) limits: Limits,
    pub(crate) ttl_ms: u64,
    pub(crate) created_ms: u64,
    pub(crate) used_ms: u64,
    pub(crate) runs: u64,
    pub(crate) languages: Vec<String>,
    pub(crate) disk_bytes: u64,
}

/// A sandbox in use.
pub(super) struct Room {
    pub(super) record: SandboxRecord,
    place: PathBuf,
    slot: Arc<Mutex<Slot>>,
    waiting: AtomicUsize,
    pub(super) closing: watch::Sender<bool>,
    used_ms: AtomicU64,
    pub(super) disk_bytes: AtomicU64,
    runs: AtomicU64,
    /// What it keeps while it is awake, as far as was looked.
    pub(super) memory_bytes: AtomicU64,
    /// Whether somebody looks at it between runs.
    pub(super) is_watched: AtomicBool,
    /// Interpreters that are awake, for lists.
    awake: StdMutex<Vec<String>>,
}

/// What a turn works on.
pub(super) struct Slot {
    pub(super) living: Option<Living>,
    /// Interpreters that had a state.
    pub(super) languages: BTreeSet<String>,
    /// Why states are gone that were there.
    pub(super) lost: &'static str,
    lock: Option<File>,
}

impl Room {
    /// The folder of a sandbox.
    pub(super) fn place(state_dir: &Path, id: &SandboxId) -> PathBuf {
        state_dir.join("sandboxes").join(id.as_str())
    }

    pub(super) fn new(state_dir: &Path, record: SandboxRecord) -> Arc<Self> {
        let slot = Slot {
            living: None,
            languages: record.languages.iter().cloned().collect(),
            lost: "the server was restarted",
            lock: None,
        };
        Arc::new(Self {
            place: Self::place(state_dir, &record.id),
            slot: Arc::new(Mutex::new(slot)),
            waiting: AtomicUsize::new(0),
            closing: watch::Sender::new(false),
            used_ms: AtomicU64::new(record.used_ms),
            disk_bytes: AtomicU64::new(record.disk_bytes),
            runs: AtomicU64::new(record.runs),
            memory_bytes: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            awake: StdMutex::default(),
            record,
        })
    }

    /// Its directory on the host.
    pub(super) fn workspace_path(&self) -> PathBuf {
        self.place.join(WORKSPACE)
    }

    pub(super) fn workspace(&self) -> LastingWorkspace {
        LastingWorkspace { path: self.workspace_path(), identity: self.record.identity }
    }

    /// Its files, from outside; they belong to that owner.
    pub(super) fn files(&self, (uid, gid): (u32, u32)) -> std::io::Result<Workspace> {
        let limits = &self.record.limits;
        let quota = Quota { bytes: limits.disk_bytes, inodes: limits.disk_inodes };
        Workspace::open(&self.workspace_path(), quota, Some(Owner { uid, gid }))
    }

    /// Waits for its turn; a run that is stopped meanwhile gives up its place.
    pub(super) async fn turn(
        &self,
        stop: &mut oneshot::Receiver<Stop>,
    ) -> Result<OwnedMutexGuard<Slot>, Unstarted> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= QUEUE_MAX {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(full());
        }
        let mut closing = self.closing.subscribe();
        let taken = tokio::select! {
            biased;
            Ok(why) = stop => Err(Unstarted::stopped(why)),
            _ = closing.wait_for(|closing| *closing) => Err(Unstarted::stopped(Stop::Killed)),
            slot = Arc::clone(&self.slot).lock_owned() => Ok(slot),
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut slot = taken?;
        slot.hold(&self.place)?;
        Ok(slot)
    }

    /// Its turn if nobody else has it.
    pub(super) fn turn_now(&self) -> Option<OwnedMutexGuard<Slot>> {
        Arc::clone(&self.slot).try_lock_owned().ok()
    }

    /// Its turn once whoever has it is done.
    pub(super) async fn last_turn(&self) -> OwnedMutexGuard<Slot> {
        Arc::clone(&self.slot).lock_owned().await
    }

    /// Sees to it that no other server uses it; one whose folder is gone is used by none.
    pub(super) fn hold_alone(&self, slot: &mut Slot) -> Result<(), RunError> {
        if self.place.exists() { slot.hold(&self.place).map_err(|busy| busy.error) } else { Ok(()) }
    }

    /// Notes a run.
    pub(super) fn note_use(&self, slot: &Slot) {
        self.used_ms.store(clock::unix_ms(), Ordering::Relaxed);
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.note_awake(slot);
    }

    /// Notes which interpreters are awake.
    pub(super) fn note_awake(&self, slot: &Slot) {
        let awake =
            slot.living.iter().flat_map(|living| living.inside.interpreters.keys().cloned()).collect();
        *self.awake.lock().unwrap_or_else(PoisonError::into_inner) = awake;
    }

    pub(super) fn awake(&self) -> Vec<String> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    pub(super) fn expires_ms(&self) -> u64 {
        self.used_ms().saturating_add(self.record.ttl_ms)
    }

    /// Takes away the files that a run needed besides the caller's.
    pub(super) fn tidy(&self, names: &[String]) {
        let path = self.workspace_path();
        for name in names.iter().filter(|name| name.starts_with(OWN_FILES)) {
            // The name has no separator, so this reaches nothing but an entry of the workspace itself; what the
            // program put in its place is unlinked, not followed.
            std::fs::remove_file(path.join(name)).ok();
        }
    }
}

impl Slot {
    /// Takes the lock of the folder, once.
    fn hold(&mut self, place: &Path) -> Result<(), Unstarted> {
        if self.lock.is_some() {
            return Ok(());
        }
        let opened =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(place.join(LOCK));
        let file = opened.map_err(|error| {
            Unstarted::from(
                RunError::new("sandbox_broken", "the files of the sandbox cannot be reached")
                    .remedy(format!("ask the operator to look at the state directory: {error}")),
            )
        })?;
        file.try_lock().map_err(|_| elsewhere())?;
        self.lock = Some(file);
        Ok(())
    }

    /// Puts it to sleep: everything inside ends, the files stay.
    pub(super) fn sleep(&mut self, reason: &'static str) -> Option<Living> {
        self.lost = reason;
        self.living.take()
    }

    /// Lets another server have it.
    pub(super) fn let_go(&mut self) {
        self.lock = None;
    }
}

fn full() -> Unstarted {
    Unstarted::busy(crate::Busy {
        reason: "as many runs as may wait for this sandbox are waiting already",
        retry_after_ms: RETRY_MS,
    })
}

fn elsewhere() -> Unstarted {
    Unstarted::busy(crate::Busy {
        reason: "another server of the same state directory is using this sandbox",
        retry_after_ms: RETRY_MS,
    })
}
