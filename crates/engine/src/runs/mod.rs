//! Runs that outlive the request that started them.
//!
//! ```text
//! start -> live ---- ended ----> stored ----------> read from the store
//!           |                        ^
//!           +- handed over: a row ---+     dropped before: stopped
//! ```
//! Each run has its own task. A run is found in memory while it executes and until the store has it; after
//! that, only in the store. Every lookup takes the principal. The run of another principal is answered like a
//! run that never existed.

mod follow;
mod id;
mod install;
mod live;
mod log;
mod news;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox::{FailureKind, Outcome};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::Instrument;

pub use id::RunId;
pub use install::InstallRequest;
pub use live::{LiveRun, StartedRun};
#[cfg(test)]
pub(crate) use log::RunLog;
pub use log::{LOG_READ_BYTES_MAX, LogPart, LogRange};
pub(crate) use log::{LogBlock, LogPlace, part};
pub use news::RunNews;

use self::follow::Beginning;
use self::live::{Entry, Kind};
use crate::audit::RunProof;
use crate::clock;
use crate::conversation::{RunEvent, Stop};
use policy::{Action, Call, SecretsBefore};

use crate::request::RunRequest;
use crate::result::{RunError, RunResult};
use crate::runtimes::known_language;
use crate::sandboxes::Sandboxes;
use crate::store::{NewRun, Store, StoredRun};
use crate::telemetry::{self, Snapshot, Telemetry};
use crate::{Caller, Engine, Principal, Wall};

/// How many results that the store did not take are kept in memory.
const UNSTORED_MAX: usize = 16;
/// The most runs in one list.
const LIST_MAX: usize = 1000;
/// The longest language name that is stored.
const LANGUAGE_CHARACTERS_MAX: usize = 32;
const RETRY_MS: u64 = 1000;
/// How long the last flush of the store may take when the server ends.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// When a finished run is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before the caller gets the result.
    BeforeReply,
    /// A moment after the caller gets the result. Before it only if the run was handed over, or if its output
    /// is too long for the answer.
    Behind,
}

/// The configuration of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunsConfig {
    /// When a finished run is on the disk.
    pub durability: Durability,
    /// The most runs of one principal at once, including waiting ones.
    pub live_per_principal_max: usize,
    /// The most runs of all principals at once, including waiting ones.
    pub live_max: usize,
    /// How many bytes of each stream an answer contains. The log has the rest.
    pub inline_bytes_max: usize,
}

impl Default for RunsConfig {
    fn default() -> Self {
        Self {
            durability: Durability::BeforeReply,
            live_per_principal_max: 64,
            live_max: 512,
            inline_bytes_max: 20_000,
        }
    }
}

/// A run that ended.
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// Its handle.
    pub id: RunId,
    /// The principal that owns it.
    pub principal: Principal,
    /// Its language, as the caller gave it.
    pub language: String,
    /// When the caller asked for it, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// The result.
    pub result: RunResult,
    /// What its receipt needs; `None` if nothing recorded the run.
    pub proof: Option<Arc<RunProof>>,
}

/// The result of a lookup.
pub enum FoundRun {
    /// The run is in progress in this server.
    Live(LiveRun),
    /// The run is in progress in another server with the same state directory. Ask again, or ask that server.
    Elsewhere(RunElsewhere),
    /// The run has ended.
    Finished(Arc<FinishedRun>),
}

/// A run in progress in another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunElsewhere {
    /// Its handle.
    pub id: RunId,
    /// Its language, as the caller gave it.
    pub language: String,
    /// When the caller asked for it, in milliseconds since the epoch.
    pub created_ms: u64,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    /// Its handle.
    pub id: RunId,
    /// Its language, as the caller gave it.
    pub language: String,
    /// How it ended, or [`Outcome::Running`].
    pub outcome: Outcome,
    /// When the caller asked for it, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
}

/// All runs of this server, and the stored runs of others.
pub struct Runs {
    engine: Arc<Engine>,
    store: Store,
    sandboxes: Arc<Sandboxes>,
    config: RunsConfig,
    registry: Arc<Mutex<Registry>>,
    telemetry: Telemetry,
    closing: watch::Sender<bool>,
    forgotten: Notify,
}

#[derive(Default)]
struct Registry {
    entries: HashMap<RunId, Arc<Entry>>,
    /// The number of runs in progress, by principal.
    live: HashMap<Principal, usize>,
    live_total: usize,
    /// Runs that the store did not take, oldest first.
    unstored: VecDeque<RunId>,
}

/// A slot among the live runs. Dropping it frees the slot.
struct RunSlot {
    registry: Arc<Mutex<Registry>>,
    principal: Principal,
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.live_total = registry.live_total.saturating_sub(1);
        if let Some(count) = registry.live.get_mut(&self.principal) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                registry.live.remove(&self.principal);
            }
        }
    }
}

impl Runs {
    /// Creates a registry over an engine and a store.
    pub fn new(engine: Arc<Engine>, store: Store, config: RunsConfig) -> Arc<Self> {
        let telemetry = Telemetry::new(engine.runtimes().names());
        let sandboxes = Sandboxes::new(Arc::clone(&engine), store.clone());
        Arc::new(Self {
            engine,
            store,
            sandboxes,
            config,
            registry: Arc::default(),
            telemetry,
            closing: watch::Sender::new(false),
            forgotten: Notify::new(),
        })
    }

    /// The engine beneath.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The persistent sandboxes.
    pub fn sandboxes(&self) -> &Arc<Sandboxes> {
        &self.sandboxes
    }

    /// The store beneath.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Starts a run in its own task.
    pub fn start(self: &Arc<Self>, caller: &Caller, request: RunRequest) -> Result<StartedRun, RunError> {
        self.start_with(caller, request, None, None)
    }

    /// The same, with a handle that was made before, so that a record of the call can name it.
    pub fn start_as(
        self: &Arc<Self>,
        id: RunId,
        caller: &Caller,
        request: RunRequest,
    ) -> Result<StartedRun, RunError> {
        self.start_with(caller, request, None, Some(id))
    }

    /// The same. Events go to `events` as they arrive, and a full channel holds up the program: for a caller that is
    /// connected to its run as to a process.
    pub fn start_attached(
        self: &Arc<Self>,
        caller: &Caller,
        request: RunRequest,
        events: mpsc::Sender<RunEvent>,
    ) -> Result<StartedRun, RunError> {
        self.start_with(caller, request, Some(events), None)
    }

    fn start_with(
        self: &Arc<Self>,
        caller: &Caller,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        id: Option<RunId>,
    ) -> Result<StartedRun, RunError> {
        let begun = self.begin(caller, request, events, id);
        begun.inspect_err(|error| self.telemetry.count_error(&error.code))
    }

    fn begin(
        self: &Arc<Self>,
        caller: &Caller,
        request: RunRequest,
        events: Option<mpsc::Sender<RunEvent>>,
        id: Option<RunId>,
    ) -> Result<StartedRun, RunError> {
        let (entry, stopped, place) = self.enter(caller, &request.language, id, Kind::Program)?;
        let beginning = Beginning { caller: caller.clone(), request, events, stopped, place };
        let span = span(&entry.run);
        let task = tokio::spawn(Arc::clone(self).follow(Arc::clone(&entry), beginning).instrument(span));
        entry.abort.get_or_init(|| task.abort_handle());
        Ok(StartedRun { run: LiveRun(entry), runs: Arc::clone(self), is_handed_over: false })
    }

    /// Takes a place among the live runs.
    fn enter(
        &self,
        caller: &Caller,
        language: &str,
        id: Option<RunId>,
        kind: Kind,
    ) -> Result<(Arc<Entry>, oneshot::Receiver<Stop>, RunSlot), RunError> {
        let run = NewRun {
            id: id.map_or_else(RunId::random, Ok)?,
            principal: caller.principal.clone(),
            language: language.chars().take(LANGUAGE_CHARACTERS_MAX).collect(),
            created_ms: clock::unix_ms(),
        };
        let (stop, stopped) = oneshot::channel();
        let entry = Arc::new(Entry::new(run, kind, caller.secret_ms, stop));
        let place = self.take_place(&caller.principal, &entry)?;
        Ok((entry, stopped, place))
    }

    /// The principal whose runs a caller may look up.
    fn lookup_of<'a>(&self, caller: &'a Caller) -> Result<&'a Principal, RunError> {
        self.engine.judge(&Call { caller, action: Action::UseRun })?;
        Ok(&caller.principal)
    }

    fn take_place(&self, principal: &Principal, entry: &Arc<Entry>) -> Result<RunSlot, RunError> {
        let mut registry = self.registry();
        if *self.closing.borrow() {
            return Err(busy("the server is shutting down"));
        }
        let own = registry.live.get(principal).copied().unwrap_or(0);
        if own >= self.config.live_per_principal_max {
            return Err(busy("this caller has as many runs in progress as it may"));
        }
        if registry.live_total >= self.config.live_max {
            return Err(busy("the server has as many runs in progress as it may"));
        }
        registry.live.insert(principal.clone(), own + 1);
        registry.live_total += 1;
        registry.entries.insert(entry.run.id.clone(), Arc::clone(entry));
        Ok(RunSlot { registry: Arc::clone(&self.registry), principal: principal.clone() })
    }

    /// Finds a run of that caller, in progress or ended. Runs of other principals are not found.
    pub async fn find(&self, caller: &Caller, id: &RunId) -> Result<Option<FoundRun>, RunError> {
        let principal = self.lookup_of(caller)?;
        if let Some(entry) = self.entry(principal, id) {
            return Ok(Some(match entry.peek() {
                Some(run) => FoundRun::Finished(run),
                None => FoundRun::Live(LiveRun(entry)),
            }));
        }
        let stored = self.store.find(principal, id).await.map_err(|error| error.to_run_error())?;
        Ok(stored.map(|run| match run {
            StoredRun::Finished(run) => FoundRun::Finished(Arc::new(*run)),
            StoredRun::Elsewhere(NewRun { id, language, created_ms, .. }) => {
                FoundRun::Elsewhere(RunElsewhere { id, language, created_ms })
            }
        }))
    }

    /// Reads a range of the log of a run of that caller, in progress or ended.
    pub async fn log(
        &self,
        caller: &Caller,
        id: &RunId,
        range: LogRange,
    ) -> Result<Option<LogPart>, RunError> {
        let principal = self.lookup_of(caller)?;
        let stored = async || {
            let found = self.store.log(principal, id, range).await;
            found.map_err(|error| error.to_run_error())
        };
        let Some(entry) = self.entry(principal, id) else { return stored().await };
        let (in_memory, total) = entry.read(range);
        if in_memory.is_some() {
            return Ok(in_memory);
        }
        Ok(stored()
            .await?
            .map(|found| part(range, found.bytes, total.max(found.total), entry.peek().is_none())))
    }

    /// Lists the newest runs of that caller, newest first.
    pub async fn list(&self, caller: &Caller, limit: usize) -> Result<Vec<ListedRun>, RunError> {
        let principal = self.lookup_of(caller)?;
        let limit = limit.min(LIST_MAX);
        let mut list = self.store.list(principal, limit).await.map_err(|error| error.to_run_error())?;
        for entry in self.registry().entries.values().filter(|entry| entry.run.principal == *principal) {
            let listed = entry.listed();
            match list.iter_mut().find(|known| known.id == listed.id) {
                Some(known) => *known = listed,
                None => list.push(listed),
            }
        }
        list.sort_by_key(|run| std::cmp::Reverse(run.created_ms));
        list.truncate(limit);
        Ok(list)
    }

    /// The runs of all principals that are in memory, with their owners.
    pub(crate) fn live_across(&self) -> Vec<(Principal, ListedRun)> {
        let registry = self.registry();
        registry.entries.values().map(|entry| (entry.run.principal.clone(), entry.listed())).collect()
    }

    /// Cancels the runs of a principal that are in progress in this server, also those in persistent sandboxes.
    pub fn cancel_of(&self, principal: &Principal, secrets: SecretsBefore) {
        let registry = self.registry();
        let own = registry.entries.values().filter(|entry| entry.run.principal == *principal);
        own.filter(|entry| secrets.covers(entry.secret_ms)).for_each(|entry| entry.stop(Stop::Cancelled));
    }

    /// Ends all runs, accepts no more, and stores their results.
    pub async fn shutdown(&self, stop: Stop, patience: Duration) {
        let entries: Vec<_> = {
            let registry = self.registry();
            self.closing.send_replace(true);
            registry.entries.values().cloned().collect()
        };
        entries.iter().for_each(|entry| entry.stop(stop));
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let forgotten = self.forgotten.notified();
            let is_over = self.registry().entries.is_empty();
            if is_over || tokio::time::timeout_at(deadline, forgotten).await.is_err() {
                break;
            }
        }
        let rest: Vec<_> = self.registry().entries.values().cloned().collect();
        // Aborting the tasks destroys their sandboxes.
        rest.iter().filter_map(|entry| entry.abort.get()).for_each(tokio::task::AbortHandle::abort);
        let is_row_left = rest.iter().any(|entry| entry.wants_row());
        let last_words = async {
            match is_row_left {
                true => self.store.close_own_runs().await,
                false if entries.is_empty() => Ok(()),
                false => self.store.flush().await,
            }
        };
        let walls = async { tokio::join!(self.sandboxes.shutdown(), self.engine.close_pool()) };
        // The next server repairs what does not succeed now.
        if tokio::time::timeout(patience, walls).await.is_err() {
            tracing::warn!(reason = "sandboxes did not end in time", "shutdown_incomplete");
        }
        match tokio::time::timeout(FLUSH_PATIENCE, last_words).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(reason = error.code(), "shutdown_incomplete"),
            Err(_) => tracing::warn!(reason = "the store did not answer in time", "shutdown_incomplete"),
        }
    }

    /// The number of runs that have not ended.
    pub fn live(&self) -> usize {
        self.registry().live_total
    }

    /// All counters at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let pools = self.engine.walls().map(Wall::pool_snapshot).collect();
        let counted = self.telemetry.snapshot(self.live(), self.engine.waiting(), pools);
        Snapshot { failures: self.failures(), egress: self.engine.reach_log().counts(), ..counted }
    }

    /// Counts of the failures that no caller was told about: in the engine, its backend and its store.
    pub fn failures(&self) -> Vec<(FailureKind, u64)> {
        let counts = telemetry::added(self.engine.failures(), self.store.failures().counts());
        FailureKind::ALL.into_iter().zip(counts).collect()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, principal: &Principal, id: &RunId) -> Option<Arc<Entry>> {
        let registry = self.registry();
        registry.entries.get(id).filter(|entry| entry.run.principal == *principal).cloned()
    }

    fn is_known(&self, entry: &Entry) -> bool {
        self.registry().entries.contains_key(&entry.run.id)
    }

    fn note_unstored(&self, entry: &Entry) {
        let mut registry = self.registry();
        registry.unstored.push_back(entry.run.id.clone());
        if registry.unstored.len() > UNSTORED_MAX
            && let Some(oldest) = registry.unstored.pop_front()
        {
            registry.entries.remove(&oldest);
        }
    }

    fn forget(&self, entry: &Entry) {
        let mut registry = self.registry();
        registry.entries.remove(&entry.run.id);
        registry.unstored.retain(|id| *id != entry.run.id);
        self.forgotten.notify_waiters();
    }
}

/// The tracing span around a run. It contains only language names that the server knows, because a caller can
/// send any text.
fn span(run: &NewRun) -> tracing::Span {
    tracing::info_span!(
        "run",
        run_id = run.id.as_str(),
        principal = %run.principal,
        language = known_language(&run.language),
        outcome = tracing::field::Empty,
        error = tracing::field::Empty,
    )
}

fn busy(reason: &str) -> RunError {
    let mut error = RunError::new("busy", reason).remedy("wait for earlier runs to end, or stop some");
    error.retryable = true;
    error.retry_after_ms = Some(RETRY_MS);
    error
}
