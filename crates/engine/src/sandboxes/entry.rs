//! One persistent sandbox as this server knows it: its record, its folder on disk, its queue of runs.
//!
//! Runs execute one at a time, in the order in which they arrive. While a server uses a sandbox it holds a lock
//! on the folder. Another server with the same state directory therefore cannot wake the sandbox a second time.
//! The kernel releases the lock when the process ends.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use sandbox::{LastingWorkspace, Limits};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot, watch};

use super::awake::AwakeSandbox;
use super::id::SandboxId;
use crate::Principal;
use crate::clock;
use crate::conversation::Stop;
use crate::result::RunError;
use crate::run::OWN_FILES;
use crate::unstarted::Unstarted;
use crate::workspace::{Owner, Pace, Quota, Used, Workspace};

/// How many runs may wait for their turn in one sandbox.
const QUEUE_MAX: usize = 16;
const RETRY_MS: u64 = 500;
/// Files examined less than this long ago are still in the machine's page cache.
const RECENT_MS: u64 = 60_000;
const SMALL_INODES: u64 = 48;
const QUICK: Duration = Duration::from_millis(2);
const LOCK: &str = "lock";
const WORKSPACE: &str = "workspace";

/// A sandbox as the store records it.
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
pub(super) struct SandboxEntry {
    pub(super) record: SandboxRecord,
    place: PathBuf,
    slot: Arc<Mutex<Slot>>,
    waiting: AtomicUsize,
    /// Whether this server holds the lock. While it does, no other server changes or closes the sandbox.
    is_held: AtomicBool,
    pub(super) closing: watch::Sender<bool>,
    used_ms: AtomicU64,
    pub(super) disk_bytes: AtomicU64,
    /// Whether the last examination found few files and was quick.
    is_small: AtomicBool,
    runs: AtomicU64,
    /// The memory that the sandbox holds while it is awake, as last measured.
    pub(super) memory_bytes: AtomicU64,
    /// Whether the idle watch examines it between runs.
    pub(super) is_watched: AtomicBool,
    /// The interpreters that are awake, for lists.
    awake: StdMutex<Vec<String>>,
}

/// The state that a turn works on.
pub(super) struct Slot {
    pub(super) awake: Option<AwakeSandbox>,
    /// Interpreters that had a state.
    pub(super) languages: BTreeSet<String>,
    /// Why earlier interpreter states are gone.
    pub(super) lost: &'static str,
    lock: Option<File>,
}

impl SandboxEntry {
    /// The folder of a sandbox.
    pub(super) fn place(state_dir: &Path, id: &SandboxId) -> PathBuf {
        state_dir.join("sandboxes").join(id.as_str())
    }

    pub(super) fn new(state_dir: &Path, record: SandboxRecord) -> Arc<Self> {
        let slot = Slot {
            awake: None,
            languages: record.languages.iter().cloned().collect(),
            lost: "the server was restarted",
            lock: None,
        };
        Arc::new(Self {
            place: Self::place(state_dir, &record.id),
            slot: Arc::new(Mutex::new(slot)),
            waiting: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            used_ms: AtomicU64::new(record.used_ms),
            disk_bytes: AtomicU64::new(record.disk_bytes),
            is_small: AtomicBool::new(false),
            runs: AtomicU64::new(record.runs),
            memory_bytes: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            awake: StdMutex::default(),
            record,
        })
    }

    /// The workspace directory on the host.
    pub(super) fn workspace_path(&self) -> PathBuf {
        self.place.join(WORKSPACE)
    }

    pub(super) fn workspace(&self) -> LastingWorkspace {
        let parent = self.place.parent().unwrap_or(&self.place).to_owned();
        LastingWorkspace { path: self.workspace_path(), parent, identity: self.record.identity }
    }

    /// Access to its files from outside the sandbox. The files belong to that owner.
    pub(super) fn files(&self, (uid, gid): (u32, u32)) -> std::io::Result<Workspace> {
        let limits = &self.record.limits;
        let quota = Quota { bytes: limits.disk_bytes, inodes: limits.disk_inodes };
        Workspace::open(&self.workspace_path(), quota, Some(Owner { uid, gid }))
    }

    /// Waits for its turn. A run that is stopped while it waits leaves the queue.
    pub(super) async fn take_turn(
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
        self.hold(&mut slot).map_err(Unstarted::from)?;
        Ok(slot)
    }

    /// Takes the lock of the folder, once.
    pub(super) fn hold(&self, slot: &mut Slot) -> Result<(), NotHeld> {
        if slot.lock.is_some() {
            return Ok(());
        }
        let path = self.place.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        file.try_lock().map_err(|_| NotHeld::Elsewhere)?;
        // A server that closes a sandbox removes the folder while it holds the lock.
        let (open, named) = (file.metadata()?, fs::metadata(&path)?);
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
            return Err(NotHeld::Missing);
        }
        slot.lock = Some(file);
        self.is_held.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Releases the lock, so that another server can use the sandbox.
    pub(super) fn let_go(&self, slot: &mut Slot) {
        self.is_held.store(false, Ordering::SeqCst);
        slot.lock = None;
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Takes over changes that another server recorded.
    pub(super) fn learn(&self, record: &SandboxRecord) {
        self.note_used(record.used_ms);
        self.runs.fetch_max(record.runs, Ordering::Relaxed);
        if let Some(mut slot) = self.turn_now().filter(|slot| slot.lock.is_none()) {
            slot.languages.extend(record.languages.iter().cloned());
        }
    }

    /// Takes the turn if it is free.
    pub(super) fn turn_now(&self) -> Option<OwnedMutexGuard<Slot>> {
        Arc::clone(&self.slot).try_lock_owned().ok()
    }

    /// Takes the turn after the current holder is done.
    pub(super) async fn last_turn(&self) -> OwnedMutexGuard<Slot> {
        Arc::clone(&self.slot).lock_owned().await
    }

    /// Records a run.
    pub(super) fn note_use(&self, slot: &Slot) {
        self.used_ms.store(clock::unix_ms(), Ordering::Relaxed);
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.note_awake(slot);
    }

    /// Records which interpreters are awake.
    pub(super) fn note_awake(&self, slot: &Slot) {
        let awake = slot.awake.iter().flat_map(|awake| awake.channel.interpreters().cloned()).collect();
        *self.awake.lock().unwrap_or_else(PoisonError::into_inner) = awake;
    }

    pub(super) fn awake(&self) -> Vec<String> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How to examine its files: inline, if the last examination was recent and quick.
    pub(super) fn pace(&self) -> Pace {
        let is_recent = clock::unix_ms().saturating_sub(self.used_ms()) < RECENT_MS;
        if is_recent && self.is_small.load(Ordering::Relaxed) { Pace::AtOnce } else { Pace::Aside }
    }

    /// Records how much the examination found and how long it took.
    pub(super) fn note_size(&self, used: Option<Used>, took: Duration) {
        let is_small = used.is_some_and(|used| used.is_complete && used.inodes <= SMALL_INODES);
        self.is_small.store(is_small && took < QUICK, Ordering::Relaxed);
    }

    /// Records when it was last used.
    pub(super) fn note_used(&self, used_ms: u64) {
        self.used_ms.fetch_max(used_ms, Ordering::Relaxed);
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

    /// Logs that the sandbox is put to sleep, with the reason.
    pub(super) fn tell_sleep(&self, reason: &'static str) {
        tracing::debug!(sandbox_id = self.record.id.as_str(), reason, "sandbox_slept");
    }

    /// Makes its directory accessible to its owner again. A program may have removed the permissions.
    pub(super) fn open_up(&self) {
        const OWNER: u32 = 0o700;
        let path = self.workspace_path();
        // If the repair fails, the run that needs the directory reports it.
        let Ok(found) = fs::symlink_metadata(&path) else { return };
        if found.is_dir() && found.mode() & OWNER != OWNER {
            let mode = fs::Permissions::from_mode(found.mode() & 0o777 | OWNER);
            if let Err(error) = fs::set_permissions(&path, mode) {
                tracing::debug!(sandbox_id = self.record.id.as_str(), reason = %error, "workspace_not_opened_up");
            }
        }
    }

    /// Removes the files that the engine placed for a run.
    pub(super) fn tidy(&self, names: &[String]) {
        let path = self.workspace_path();
        for name in names.iter().filter(|name| name.starts_with(OWN_FILES)) {
            // The name has no separator, so this reaches only an entry of the workspace directory itself.
            // Whatever the program put in its place is unlinked, not followed.
            match std::fs::remove_file(path.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::debug!(sandbox_id = self.record.id.as_str(), reason = %error, "own_file_not_removed");
                }
                _ => {}
            }
        }
    }
}

impl Slot {
    /// Puts it to sleep: all processes inside end, the files stay.
    pub(super) fn sleep(&mut self, reason: &'static str) -> Option<AwakeSandbox> {
        self.lost = reason;
        self.awake.take()
    }
}

/// Why the lock of a sandbox's folder cannot be taken.
pub(super) enum NotHeld {
    /// Another server uses it.
    Elsewhere,
    /// The folder no longer exists.
    Missing,
    Broken(io::Error),
}

impl From<io::Error> for NotHeld {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::Missing } else { Self::Broken(error) }
    }
}

impl From<NotHeld> for Unstarted {
    fn from(why: NotHeld) -> Self {
        let message = "the files of the sandbox cannot be reached";
        match why {
            NotHeld::Elsewhere => elsewhere(),
            NotHeld::Missing => RunError::new("sandbox_broken", message)
                .remedy("close it with sandbox_close and open another")
                .into(),
            NotHeld::Broken(error) => RunError::new("sandbox_broken", message)
                .remedy(format!("ask the operator to look at the state directory: {error}"))
                .into(),
        }
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
