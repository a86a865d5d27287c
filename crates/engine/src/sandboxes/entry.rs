//! One persistent sandbox as this server knows it: its record, its queue of runs, its hold on the files.
//!
//! Runs execute one at a time, in the order in which they arrive. While a server uses a sandbox it holds the
//! workspace. Another server with the same store therefore cannot wake the sandbox a second time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use policy::Clamp;
use sandbox::workspace::{Held, NotHeld, WorkspaceStore};
use sandbox::{Limits, WorkspaceRef};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::address::InterpreterName;
use super::awake::AwakeSandbox;
use super::contexts::{self, Closing, ContextInfo};
use super::id::SandboxId;
use super::{TTL_MS_DEFAULT, TTL_MS_MAX};
use crate::Principal;
use crate::clock;
use crate::conversation::StopSignals;
use crate::packages::InstalledPackages;
use crate::result::RunError;
use crate::unstarted::{Unstarted, unless_stopped};
use crate::workspace::{FileError, Pace, Quota, Used, Workspace};

/// How many runs may wait for their turn in one sandbox.
const QUEUE_MAX: usize = 16;
const RETRY_MS: u64 = 500;
/// Files examined less than this long ago are still in the machine's page cache.
const RECENT_MS: u64 = 60_000;
const SMALL_INODES: u64 = 48;
const QUICK: Duration = Duration::from_millis(2);
/// Why the state of an interpreter is gone that a run had left alive.
const ENDED_ALONE: &str = "it ended between two runs";

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
    /// The interpreters that had a state, as [`InterpreterName`] writes them.
    pub(crate) languages: Vec<String>,
    pub(crate) disk_bytes: u64,
    /// The wall that it is behind. Its files are that wall's, so it never changes.
    pub(crate) wall: String,
    /// The names of what its runs may ask for outside.
    pub(crate) access: Vec<String>,
    /// The packages that it had when the record was read.
    pub(crate) packages: Vec<InstalledPackages>,
}

impl SandboxRecord {
    /// Its files.
    pub(super) fn workspace(&self) -> WorkspaceRef {
        WorkspaceRef { id: self.id.as_str().to_owned(), identity: self.identity }
    }

    /// Refuses names of access that the sandbox was opened without.
    pub(super) fn check_access(&self, names: &[String]) -> Result<(), RunError> {
        let Some(name) = names.iter().find(|name| !self.access.contains(name)) else { return Ok(()) };
        let shown: String = name.chars().take(64).collect();
        let message = format!("the sandbox was opened without the access `{}`", shown.escape_debug());
        let remedy = match self.access.as_slice() {
            [] => "open a sandbox with it, or run without sandbox_id".to_owned(),
            own => format!(
                "its access is {}; open a sandbox with more, or run without sandbox_id",
                own.join(", ")
            ),
        };
        Err(RunError::new("access_not_open", message).remedy(remedy))
    }
}

const NAME_CHARACTERS_MAX: usize = 64;

/// A name for people to read.
pub(super) fn checked_name(name: Option<String>) -> Result<String, RunError> {
    let name = name.unwrap_or_default();
    let is_plain = name.chars().count() <= NAME_CHARACTERS_MAX && !name.chars().any(char::is_control);
    if is_plain {
        return Ok(name);
    }
    let message = format!("a name has at most {NAME_CHARACTERS_MAX} visible characters");
    Err(RunError::bad("name", &message, "give a shorter one"))
}

/// A sandbox in use.
pub(super) struct SandboxEntry {
    pub(super) record: SandboxRecord,
    /// Its files.
    pub(super) workspace: WorkspaceRef,
    slot: Arc<Mutex<Slot>>,
    waiting: AtomicUsize,
    /// Whether this server holds the workspace. While it does, no other server changes or closes the sandbox.
    is_held: AtomicBool,
    pub(super) closing: watch::Sender<Closing>,
    used_ms: AtomicU64,
    pub(super) disk_bytes: AtomicU64,
    /// Whether the drafts of killed servers were removed since this server began to use it.
    has_no_drafts: AtomicBool,
    /// Whether the last examination found few files and was quick.
    is_small: AtomicBool,
    runs: AtomicU64,
    /// The memory that the sandbox holds while it is awake, as last measured.
    pub(super) memory_bytes: AtomicU64,
    /// Whether the idle watch examines it between runs.
    pub(super) is_watched: AtomicBool,
    /// The interpreters, for lists.
    contexts: StdMutex<Vec<ContextInfo>>,
    /// The packages that are installed.
    packages: StdMutex<Vec<InstalledPackages>>,
}

/// The state that a turn works on.
pub(super) struct Slot {
    pub(super) awake: Option<AwakeSandbox>,
    /// Interpreters that had a state, each with the reason why the state is gone if the interpreter is not alive.
    pub(super) interpreters: BTreeMap<InterpreterName, &'static str>,
    held: Option<Box<dyn Held>>,
}

impl SandboxEntry {
    pub(super) fn new(record: SandboxRecord) -> Arc<Self> {
        let slot = Slot { awake: None, interpreters: recorded(&record), held: None };
        Arc::new(Self {
            workspace: record.workspace(),
            contexts: StdMutex::new(contexts::listed(&slot)),
            slot: Arc::new(Mutex::new(slot)),
            waiting: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
            closing: watch::Sender::default(),
            used_ms: AtomicU64::new(record.used_ms),
            disk_bytes: AtomicU64::new(record.disk_bytes),
            has_no_drafts: AtomicBool::new(false),
            is_small: AtomicBool::new(false),
            runs: AtomicU64::new(record.runs),
            memory_bytes: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            packages: StdMutex::new(record.packages.clone()),
            record,
        })
    }

    /// The limits of its files.
    pub(super) fn quota(&self) -> Quota {
        Quota { bytes: self.record.limits.disk_bytes, inodes: self.record.limits.disk_inodes }
    }

    /// Removes what a server that was killed during an upload left, once while this server uses the sandbox.
    pub(super) async fn remove_drafts(&self, files: &dyn Workspace) {
        if !self.has_no_drafts.swap(true, Ordering::Relaxed)
            && let Err(error) = files.remove_abandoned_drafts().await
        {
            // They count for the quota until the next attempt.
            self.has_no_drafts.store(false, Ordering::Relaxed);
            tracing::debug!(sandbox_id = self.record.id.as_str(), reason = %error, "drafts_not_removed");
        }
    }

    /// Waits for its turn. A run that is stopped while it waits leaves the queue.
    pub(super) async fn take_turn(
        &self,
        workspaces: &dyn WorkspaceStore,
        stops: &mut StopSignals,
    ) -> Result<OwnedMutexGuard<Slot>, Unstarted> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= QUEUE_MAX {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(full());
        }
        let turn = async { Ok(Arc::clone(&self.slot).lock_owned().await) };
        let taken = unless_stopped(stops, turn).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut slot = taken?;
        self.hold(workspaces, &mut slot).await.map_err(Unstarted::from)?;
        Ok(slot)
    }

    /// Takes exclusive use of the workspace, once.
    pub(super) async fn hold(&self, workspaces: &dyn WorkspaceStore, slot: &mut Slot) -> Result<(), NotHeld> {
        if slot.held.is_none() {
            slot.held = Some(workspaces.hold(&self.workspace).await?);
            self.is_held.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Releases the workspace, so that another server can use the sandbox.
    pub(super) fn let_go(&self, slot: &mut Slot) {
        self.is_held.store(false, Ordering::SeqCst);
        self.has_no_drafts.store(false, Ordering::Relaxed);
        slot.held = None;
    }

    /// The number of runs that wait for their turn.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Takes over changes that another server recorded.
    pub(super) fn learn(&self, record: &SandboxRecord) {
        self.note_used(record.used_ms);
        self.runs.fetch_max(record.runs, Ordering::Relaxed);
        if let Some(mut slot) = self.turn_now().filter(|slot| slot.held.is_none()) {
            self.set_packages(record.packages.clone());
            // The other server may also have removed contexts.
            let known = std::mem::replace(&mut slot.interpreters, recorded(record));
            for (name, why) in &mut slot.interpreters {
                *why = known.get(name).copied().unwrap_or(*why);
            }
            self.note_awake(&slot);
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
        *self.contexts.lock().unwrap_or_else(PoisonError::into_inner) = contexts::listed(slot);
    }

    /// The packages that are installed.
    pub(super) fn packages(&self) -> Vec<InstalledPackages> {
        self.packages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_packages(&self, packages: Vec<InstalledPackages>) {
        *self.packages.lock().unwrap_or_else(PoisonError::into_inner) = packages;
    }

    pub(super) fn contexts(&self) -> Vec<ContextInfo> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
}

impl Slot {
    /// Puts it to sleep: all processes inside end, the files stay.
    pub(super) fn sleep(&mut self, reason: &'static str) -> Option<AwakeSandbox> {
        let awake = self.awake.take();
        for name in awake.iter().flat_map(|awake| awake.channel.interpreters()) {
            self.interpreters.insert(name.clone(), reason);
        }
        awake
    }

    /// Records that an interpreter was started. Returns why the state of its predecessor is gone, if it had one.
    pub(super) fn started(&mut self, name: &InterpreterName) -> Option<&'static str> {
        self.interpreters.insert(name.clone(), ENDED_ALONE)
    }

    /// Records why the states of interpreters are gone.
    pub(super) fn lost<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a InterpreterName>,
        reason: &'static str,
    ) {
        for name in names {
            self.interpreters.insert(name.clone(), reason);
        }
    }

    /// The interpreters for the store.
    pub(super) fn names(&self) -> Vec<String> {
        self.interpreters.keys().map(InterpreterName::to_string).collect()
    }
}

/// How long a sandbox is kept without use. A time that is not given as asked is added to `clamped`.
pub(super) fn ttl_ms(asked_s: Option<u64>, clamped: &mut Vec<Clamp>) -> u64 {
    let Some(asked_s) = asked_s else { return TTL_MS_DEFAULT };
    let given_s = asked_s.clamp(1, TTL_MS_MAX / 1000);
    if given_s != asked_s {
        let limit = "ttl_s".to_owned();
        clamped.push(Clamp { limit, asked: asked_s as f64, given: given_s as f64 });
    }
    given_s * 1000
}

/// The interpreters of a sandbox that this server did not use yet.
fn recorded(record: &SandboxRecord) -> BTreeMap<InterpreterName, &'static str> {
    let names = record.languages.iter().filter_map(|name| InterpreterName::parse(name));
    names.map(|name| (name, "the server was restarted")).collect()
}

impl From<NotHeld> for Unstarted {
    fn from(why: NotHeld) -> Self {
        let message = "the files of the sandbox cannot be reached";
        match why {
            NotHeld::Elsewhere => elsewhere(),
            NotHeld::Unavailable { retry_after_ms } => {
                RunError::from(FileError::Unavailable { retry_after_ms }).into()
            }
            NotHeld::Missing => RunError::new("sandbox_broken", message)
                .remedy("close it with sandbox_close and open another")
                .into(),
            NotHeld::Broken(reason) => RunError::new("sandbox_broken", message)
                .remedy(format!("ask the operator to look at the state directory: {reason}"))
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
