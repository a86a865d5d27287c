//! Persistent sandboxes: a workspace on disk, and interpreters that keep their state between runs.
//!
//! ```text
//! open -> asleep <-> awake (wall, guest, interpreters) -> close -> removed
//!            ^          |
//!            +- idle, restart of the server: the files stay, the interpreter states are lost, the next run reports it
//! ```
//! The store has the record before the caller gets the handle. A caller who does not own a sandbox gets
//! `unknown_sandbox`, the same answer as for an id that never existed. Languages without a live interpreter run
//! in a separate wall over the same files.

mod across;
mod address;
mod awake;
mod contexts;
#[cfg(test)]
mod contexts_tests;
mod entry;
mod id;
mod idle_watch;
mod info;
mod live_run;
mod own_files;
mod packages;
mod persistent_run;
mod quotas;
mod sleep_of;
#[cfg(test)]
mod upkeep_tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use policy::{Action, Call, Caller, Clamp, Floor, WallDemand};
use sandbox::workspace::{NotHeld, Quota, WorkspaceStore};
use sandbox::{BoxFuture, FailureKind, Limits};
use tokio::sync::OwnedMutexGuard;

pub(crate) use address::InterpreterName;
pub use address::{CONTEXT_NAME_BYTES_MAX, CONTEXT_SEPARATOR, ContextName, SandboxAddress};
pub(crate) use awake::{add_live_languages, live_runtimes};
pub(crate) use contexts::Closing;
pub use contexts::ContextInfo;
pub(crate) use entry::SandboxRecord;
pub use id::SandboxId;
use info::info;
pub use info::{OpenRequest, SandboxInfo};
pub use packages::Installed;
pub(crate) use persistent_run::Ties;

use self::entry::{SandboxEntry, Slot, checked_name, ttl_ms};
use self::idle_watch::IdleWatch;
use crate::Principal;
use crate::clock;
use crate::packages::PackageUse;
use crate::result::RunError;
use crate::store::{Opened, Store};
use crate::unstarted::Unstarted;
use crate::workspace::{FileError, Workspace, Workspaces};
use crate::{Engine, Wall, handle};

/// The most sandboxes of one principal; the next constant is the most of all principals.
const OWN_MAX: u64 = 2500;
const ALL_MAX: u64 = 5000;
/// When all workspaces together hold this much, no more sandboxes are opened.
const DISK_BYTES_MAX: u64 = 64 << 30;
/// How long an unused sandbox is kept by default; the next constant is the most.
const TTL_MS_DEFAULT: u64 = 24 * 60 * 60 * 1000;
const TTL_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;
/// A sandbox that is unused for this long is put to sleep.
const IDLE_MS_MAX: u64 = 10 * 60 * 1000;
const UPKEEP_PAUSE: Duration = Duration::from_secs(5);
/// The subject under which failures to close expired sandboxes are reported.
const EXPIRED: &str = "expired sandboxes";
/// The least limits with which a live interpreter of every language works.
const FLOOR: Floor = Floor { memory_mb: 96, processes: 48, open_files: 32 };

/// All persistent sandboxes of this server.
pub struct Sandboxes {
    engine: Arc<Engine>,
    store: Store,
    entries: Mutex<HashMap<SandboxId, Arc<SandboxEntry>>>,
    idle_watch: IdleWatch,
    own: Weak<Self>,
}

impl Sandboxes {
    pub(crate) fn new(engine: Arc<Engine>, store: Store) -> Arc<Self> {
        let sandboxes = Arc::new_cyclic(|own| Self {
            engine,
            store,
            entries: Mutex::default(),
            idle_watch: IdleWatch::default(),
            own: own.clone(),
        });
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(upkeep(Arc::downgrade(&sandboxes)));
        }
        sandboxes
    }

    /// Opens a sandbox. The store has it before the caller gets the handle.
    pub async fn open(
        &self,
        caller: &Caller,
        request: OpenRequest,
    ) -> Result<(SandboxInfo, Vec<Clamp>), RunError> {
        let action = Action::OpenSandbox { floor: FLOOR, ask: &request.ask };
        let mut terms = self.engine.judge(&Call { caller, action })?;
        self.engine.check_access(caller, &request.access)?;
        let ttl_ms = ttl_ms(request.ttl_s, &mut terms.clamped);
        let demand = WallDemand { wanted: request.wall, lists: request.wall_lists };
        let wall = self.engine.choose_wall(&demand)?;
        let workspaces = self.workspaces_of(wall)?;
        let principal = &caller.principal;
        self.check_room(principal).await?;
        let own_max = self.room_for_sandbox(caller).await?;
        let of = PackageUse { caller, wall: wall.name(), progress: request.install_progress };
        let shown = self.engine.prepare_packages(&of, &request.packages, &[]).await?;
        let now = clock::unix_ms();
        let record = SandboxRecord {
            id: SandboxId::random()?,
            principal: principal.clone(),
            name: checked_name(request.name)?,
            identity: random_identity()?,
            limits: Limits {
                disk_bytes: terms.limits.disk_bytes.min(self.disk_bytes_max(caller)),
                ..terms.limits
            },
            ttl_ms,
            created_ms: now,
            used_ms: now,
            runs: 0,
            languages: Vec::new(),
            disk_bytes: 0,
            wall: wall.name().to_owned(),
            access: request.access,
            packages: shown.installed(),
        };
        let entry = SandboxEntry::new(record.clone());
        workspaces.create(&entry.workspace).await.map_err(|error| no_folder(&error))?;
        // Held until the record exists: another server removes workspaces without a record.
        let held = workspaces.hold(&entry.workspace).await.map_err(|error| Unstarted::from(error).error)?;
        let opened = self.store.open_sandbox(record.clone(), own_max).await;
        if opened != Ok(Opened::Yes) {
            remove(workspaces, &entry).await;
            let refused = || quotas::sandboxes_exceeded(own_max.unwrap_or(OWN_MAX), caller);
            return Err(opened.map_or_else(|error| error.to_run_error(), |_| refused()));
        }
        drop(held);
        self.entries().insert(record.id.clone(), Arc::clone(&entry));
        tracing::debug!(sandbox_id = record.id.as_str(), principal = %principal, "sandbox_opened");
        Ok((info(&entry), terms.clamped))
    }

    /// Lists the sandboxes of a caller, newest first.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<SandboxInfo>, RunError> {
        let principal = self.lookup_of(caller)?;
        let records =
            self.store.list_sandboxes(Some(principal)).await.map_err(|error| error.to_run_error())?;
        let entries = self.entries();
        let known = |record: SandboxRecord| match entries.get(&record.id) {
            Some(entry) => info(entry),
            None => info(&SandboxEntry::new(record)),
        };
        Ok(records.into_iter().map(known).collect())
    }

    /// Closes a sandbox and removes everything in it. Returns whether it existed.
    pub async fn close(&self, caller: &Caller, id: &SandboxId) -> Result<bool, RunError> {
        let principal = self.lookup_of(caller)?;
        self.close_of(principal, id).await
    }

    /// Puts every sandbox to sleep, for the end of the server.
    pub(crate) async fn shutdown(&self) {
        let entries: Vec<Arc<SandboxEntry>> = self.entries().drain().map(|(_, entry)| entry).collect();
        for entry in entries {
            entry.set_closing(true);
            let awake = entry.last_turn().await.sleep("the server was restarted");
            if let Some(mut awake) = awake {
                // The backend reports a sandbox that it cannot destroy.
                awake.sandbox.destroy().await.ok();
            }
        }
    }

    /// The principal whose sandboxes a caller may use.
    fn lookup_of<'a>(&self, caller: &'a Caller) -> Result<&'a Principal, RunError> {
        self.engine.judge(&Call { caller, action: Action::UseSandbox })?;
        Ok(&caller.principal)
    }

    /// Finds a sandbox of that principal. The sandbox of another principal is answered like one that never
    /// existed.
    async fn entry(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<Option<Arc<SandboxEntry>>, RunError> {
        let known = self.entries().get(id).cloned();
        // Another server may have used or closed a sandbox that this server does not hold.
        let entry = match known.filter(|entry| entry.is_held()) {
            Some(entry) => entry,
            None => {
                let found = self.store.find_sandbox(id).await.map_err(|error| error.to_run_error())?;
                // The owner is checked before this server remembers anything about the sandbox.
                let Some(record) = found.filter(|record| record.principal == *principal) else {
                    self.entries().retain(|known, entry| known != id || entry.is_held());
                    return Ok(None);
                };
                let new = SandboxEntry::new(record.clone());
                let entry = Arc::clone(self.entries().entry(id.clone()).or_insert(new));
                entry.learn(&record);
                entry
            }
        };
        let is_usable = entry.record.principal == *principal && !entry.closing.borrow().is_whole;
        Ok(is_usable.then_some(entry))
    }

    /// The files of persistent sandboxes behind a wall.
    fn workspaces_of<'w>(&self, wall: &'w Wall) -> Result<&'w dyn WorkspaceStore, RunError> {
        wall.backend().workspaces().ok_or_else(|| self.engine.cannot_last(wall))
    }

    /// The wall that a sandbox is behind. This server may no longer have it; no other wall takes its place.
    fn wall_of(&self, entry: &SandboxEntry) -> Result<&Wall, RunError> {
        self.engine.known_wall(&entry.record.wall).map_err(|error| {
            error.remedy("ask the operator to enable the wall of this sandbox again, or open another sandbox")
        })
    }

    /// Access to the files of a sandbox from outside.
    async fn files(&self, entry: &SandboxEntry, quota: Quota) -> Result<Arc<dyn Workspace>, RunError> {
        let opened = self.workspaces_of(self.wall_of(entry)?)?.open(&entry.workspace, quota).await;
        let files = opened.map_err(|error| no_folder(&error))?;
        entry.remove_drafts(&*files).await;
        Ok(files)
    }

    async fn check_room(&self, principal: &Principal) -> Result<(), RunError> {
        let totals = self.store.sandbox_totals(principal).await.map_err(|error| error.to_run_error())?;
        let message = if totals.own >= OWN_MAX {
            "this caller has as many sandboxes open as it may"
        } else if totals.all >= ALL_MAX {
            "as many sandboxes are open as there may be"
        } else if totals.disk_bytes >= DISK_BYTES_MAX {
            "the sandboxes that are open hold as much disk as they may together"
        } else {
            return Ok(());
        };
        Err(RunError::new("too_many_sandboxes", message).remedy("close sandboxes that are no longer needed"))
    }

    /// Ends everything that runs in it, deletes its record and removes its files, unless another server uses
    /// it.
    async fn end(&self, entry: &Arc<SandboxEntry>, mut slot: OwnedMutexGuard<Slot>) -> Result<(), RunError> {
        // A sandbox whose files are broken, or whose wall has none any more, can still be closed.
        let workspaces = self.wall_of(entry).and_then(|wall| self.workspaces_of(wall)).ok();
        if let Some(workspaces) = workspaces
            && let Err(why @ (NotHeld::Elsewhere | NotHeld::Unavailable { .. })) =
                entry.hold(workspaces, &mut slot).await
        {
            return Err(Unstarted::from(why).error);
        }
        if let Some(mut awake) = slot.sleep("the sandbox was closed") {
            // The backend reports processes that it could not kill, and the next server sweeps them.
            awake.sandbox.destroy().await.ok();
        }
        let closed = self.store.close_sandbox(entry.record.id.clone()).await;
        if closed.is_ok() {
            self.entries().remove(&entry.record.id);
            if let Some(workspaces) = workspaces {
                remove(workspaces, entry).await;
            }
            tracing::debug!(sandbox_id = entry.record.id.as_str(), "sandbox_closed");
        }
        entry.let_go(&mut slot);
        closed.map(drop).map_err(|error| error.to_run_error())
    }

    /// Puts idle sandboxes to sleep and closes expired ones.
    async fn look_after(&self, now: u64) {
        let entries: Vec<Arc<SandboxEntry>> = self.entries().values().cloned().collect();
        for entry in entries {
            // A sandbox with a run in progress is in use, however long ago that run began.
            let Some(mut slot) = entry.turn_now() else { continue };
            if now >= entry.expires_ms() {
                self.expire(&entry, slot, now).await;
            } else if now.saturating_sub(entry.used_ms()) >= IDLE_MS_MAX {
                entry.tell_sleep("idle");
                drop(slot.sleep("the interpreter was idle for long and was put to sleep"));
                entry.note_awake(&slot);
                entry.let_go(&mut slot);
            }
        }
    }

    /// Closes a sandbox that neither this server nor another used for its time to live.
    async fn expire(&self, entry: &Arc<SandboxEntry>, slot: OwnedMutexGuard<Slot>, now: u64) {
        // A sandbox that cannot be looked up or closed now is tried again.
        let found = match self.store.find_sandbox(&entry.record.id).await {
            Ok(found) => found,
            Err(error) => return self.engine.failures.report(FailureKind::Sweep, EXPIRED, &error),
        };
        let used_ms = found.map_or(0, |record| record.used_ms).max(entry.used_ms());
        if now < used_ms.saturating_add(entry.record.ttl_ms) {
            entry.note_used(used_ms);
            return;
        }
        entry.set_closing(true);
        let ended = self.end(entry, slot).await;
        entry.set_closing(ended.is_ok());
        match ended {
            Ok(()) => self.engine.failures.recovered(FailureKind::Sweep, EXPIRED),
            // Another server uses it, and closes it when it expires there.
            Err(error) if error.retryable => {
                tracing::debug!(sandbox_id = entry.record.id.as_str(), error = %error.code, "sandbox_not_expired");
            }
            Err(error) => {
                self.engine.failures.report_text(
                    FailureKind::Sweep,
                    EXPIRED,
                    &error.message,
                    Some(&error.code),
                );
            }
        }
    }

    /// Closes sandboxes that expired while no server ran, and removes workspaces without a record. Returns
    /// whether the store could be read.
    async fn sweep(&self) -> bool {
        let Some(records) = self.all_records().await else { return false };
        let now = clock::unix_ms();
        for record in &records {
            if now >= record.used_ms.saturating_add(record.ttl_ms) && !self.entries().contains_key(&record.id)
            {
                let entry = SandboxEntry::new(record.clone());
                if let Some(slot) = entry.turn_now() {
                    self.expire(&entry, slot, now).await;
                }
            }
        }
        // Closing may have taken long. Sandboxes that were opened meanwhile are no strangers.
        let Some(records) = self.all_records().await else { return false };
        let known: HashSet<String> = records.iter().map(|record| record.id.as_str().to_owned()).collect();
        for workspaces in self.engine.walls().filter_map(|wall| wall.backend().workspaces()) {
            workspaces.remove_strangers(known.clone()).await;
        }
        true
    }

    /// Whether a wall keeps files of persistent sandboxes.
    async fn has_workspaces(&self) -> bool {
        for workspaces in self.engine.walls().filter_map(|wall| wall.backend().workspaces()) {
            if !workspaces.is_empty().await {
                return true;
            }
        }
        false
    }

    async fn all_records(&self) -> Option<Vec<SandboxRecord>> {
        let listed = self.store.list_sandboxes(None).await;
        listed.map_err(|error| self.engine.failures.report(FailureKind::Sweep, EXPIRED, &error)).ok()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<SandboxEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workspaces for Sandboxes {
    fn workspace<'a>(
        &'a self,
        caller: &'a Caller,
        sandbox_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Workspace>>, RunError>> {
        Box::pin(async move {
            let principal = self.lookup_of(caller)?;
            let Some(id) = SandboxId::parse(sandbox_id) else { return Ok(None) };
            let Some(entry) = self.entry(principal, &id).await? else { return Ok(None) };
            self.files_within_quota(caller, entry).await.map(Some)
        })
    }
}

async fn upkeep(sandboxes: Weak<Sandboxes>) {
    let mut is_swept = false;
    loop {
        tokio::time::sleep(UPKEEP_PAUSE).await;
        let Some(sandboxes) = sandboxes.upgrade() else { return };
        // A server without any sandbox does not open the store for this sweep.
        if !is_swept && sandboxes.has_workspaces().await {
            is_swept = sandboxes.sweep().await;
        }
        sandboxes.look_after(clock::unix_ms()).await;
    }
}

/// The answer to a handle that does not exist or belongs to another principal.
pub fn unknown_sandbox() -> RunError {
    RunError::new("unknown_sandbox", "there is no sandbox with this sandbox_id").remedy(
        "open one with sandbox_open, or see sandbox_list; those that are not used for long are closed",
    )
}

/// Removes the files of a sandbox that has no record any more.
async fn remove(workspaces: &dyn WorkspaceStore, entry: &SandboxEntry) {
    // The wall reports files that it cannot remove, and the next server sweeps them.
    if let Err(error) = workspaces.remove(&entry.workspace).await {
        tracing::debug!(sandbox_id = entry.record.id.as_str(), reason = %error, "workspace_not_removed");
    }
}

fn no_folder(error: &FileError) -> RunError {
    let passing = RunError::from(error);
    if passing.retryable {
        return passing;
    }
    let mut told = RunError::new("disk_failed", "no folder can be made for the sandbox");
    told.cause = Some(match error {
        FileError::Failed(reason) => reason.clone(),
        error => error.to_string(),
    });
    told.remedy("ask the operator to look at the disk of the state directory")
}

/// Chooses the identity of the files. The store refuses a duplicate.
pub(crate) fn random_identity() -> Result<u32, RunError> {
    let digits = handle::random("")?;
    Ok(u32::from_str_radix(&digits[..7], 16).unwrap_or_default())
}
