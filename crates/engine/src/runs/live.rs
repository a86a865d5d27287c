//! Runs in progress: the state of one run, and the handles that callers hold.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sandbox::Outcome;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use wire::Stream;

use super::log::{LogPart, LogRange, RunLog, part};
use super::news::{Followers, RunNews};
use super::{FinishedRun, ListedRun, RunId, Runs};
use crate::conversation::{Listener, RunEvent, Stop};
use crate::store::{NewRun, StoreError};

/// What a run carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    /// Packages are fetched and built.
    Installation,
}

/// One run of this server.
pub(crate) struct Entry {
    pub(super) run: NewRun,
    kind: Kind,
    /// Of which secret the caller was ([`crate::Caller::secret_ms`]).
    pub(super) secret_ms: u64,
    log: Mutex<RunLog>,
    stop: Mutex<Option<oneshot::Sender<Stop>>>,
    finished: watch::Sender<Option<Arc<FinishedRun>>>,
    /// How many bytes it wrote.
    written: watch::Sender<u64>,
    followers: Followers,
    /// Whether the run must be stored, because a caller may ask for it later.
    pub(super) wants_row: AtomicBool,
    pub(super) abort: OnceLock<AbortHandle>,
}

impl Entry {
    pub(super) fn new(run: NewRun, kind: Kind, secret_ms: u64, stop: oneshot::Sender<Stop>) -> Self {
        Self {
            run,
            kind,
            secret_ms,
            log: Mutex::default(),
            stop: Mutex::new(Some(stop)),
            finished: watch::Sender::new(None),
            written: watch::Sender::new(0),
            followers: Followers::default(),
            wants_row: AtomicBool::new(false),
            abort: OnceLock::new(),
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, RunLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, stream: Stream, data: &[u8]) {
        let mut log = self.log();
        log.append(stream, data);
        self.written.send_replace(log.end().both);
        drop(log);
        self.followers.tell(stream, data);
    }

    /// Tells the followers something that is not the program's output.
    pub(super) fn tell(&self, data: &[u8]) {
        self.followers.tell(Stream::Stderr, data);
    }

    pub(super) fn stop(&self, why: Stop) {
        let sender = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // A run that has already ended needs no stop.
            sender.send(why).ok();
        }
    }

    pub(super) fn publish(&self, run: Arc<FinishedRun>) {
        self.finished.send_replace(Some(run));
        self.followers.end();
    }

    pub(super) fn peek(&self) -> Option<Arc<FinishedRun>> {
        self.finished.borrow().clone()
    }

    /// The run as it is in a list.
    pub(super) fn listed(&self) -> ListedRun {
        let ended = self.peek();
        ListedRun {
            id: self.run.id.clone(),
            language: self.run.language.clone(),
            outcome: ended.as_ref().map_or(Outcome::Running, |run| run.result.outcome),
            created_ms: self.run.created_ms,
            ended_ms: ended.map(|run| run.ended_ms),
        }
    }

    /// Returns the part of the range that is in memory, with the total size. The part is `None` when the store
    /// has the beginning of the range.
    pub(super) fn read(&self, range: LogRange) -> (Option<LogPart>, u64) {
        let is_running = self.peek().is_none();
        let log = self.log();
        let total = log.end().of(range.stream);
        (log.read(range).map(|bytes| part(range, bytes, total, is_running)), total)
    }

    pub(super) fn wants_row(&self) -> bool {
        self.wants_row.load(Ordering::SeqCst)
    }

    fn wait(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        let mut finished = self.finished.subscribe();
        async move {
            loop {
                if let Some(run) = finished.borrow_and_update().clone() {
                    return run;
                }
                if finished.changed().await.is_err() {
                    // The registry holds the sender, and publishes the end before it drops it.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Writes the output of a run to its log and to its followers.
pub(super) struct EntryListener(pub(super) Arc<Entry>);

impl Listener for EntryListener {
    fn hear(&mut self, event: &RunEvent) {
        if let RunEvent::Output { stream, data } = event {
            self.0.write(*stream, data);
        }
    }
}

/// A handle to a run in progress. Dropping it has no effect on the run.
#[derive(Clone)]
pub struct LiveRun(pub(super) Arc<Entry>);

impl LiveRun {
    /// Its handle.
    pub fn id(&self) -> &RunId {
        &self.0.run.id
    }

    /// Its language, as the caller gave it.
    pub fn language(&self) -> &str {
        &self.0.run.language
    }

    /// Whether it installs packages.
    pub fn is_installation(&self) -> bool {
        self.0.kind == Kind::Installation
    }

    /// When the caller asked for it, in milliseconds since the epoch.
    pub fn created_ms(&self) -> u64 {
        self.0.run.created_ms
    }

    /// The finished run, or `None` if it takes longer than `patience`.
    pub async fn wait(&self, patience: Duration) -> Option<Arc<FinishedRun>> {
        tokio::time::timeout(patience, self.0.wait()).await.ok()
    }

    /// Completes when the run has ended. Safe to drop; borrows nothing.
    pub fn finished(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        self.0.wait()
    }

    /// Ends the run. Only the first call has an effect.
    pub fn stop(&self, why: Stop) {
        self.0.stop(why);
    }

    /// Follows the output from now on. [`Runs::log`] has the earlier output.
    pub fn follow(&self) -> RunNews {
        let news = self.0.followers.add();
        if self.0.peek().is_some() {
            // The run ended before this follower was registered.
            self.0.followers.end();
        }
        news
    }

    /// The number of bytes written so far, updated as the run writes. [`Runs::log`] has the bytes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.written.subscribe()
    }
}

/// A run that was just started. Dropping it before [`Self::hand_over`] succeeds stops the run.
pub struct StartedRun {
    pub(super) run: LiveRun,
    pub(super) runs: Arc<Runs>,
    pub(super) is_handed_over: bool,
}

impl StartedRun {
    /// Its handle.
    pub fn id(&self) -> &RunId {
        self.run.id()
    }

    /// A handle to the same run that does not stop it when dropped.
    pub fn live(&self) -> LiveRun {
        self.run.clone()
    }

    /// Completes when the run has ended. Safe to drop; borrows nothing.
    pub fn finished(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        self.run.finished()
    }

    /// Ends the run. Only the first call has an effect.
    pub fn stop(&self, why: Stop) {
        self.run.stop(why);
    }

    /// Lets the run continue without its caller. On success, the disk has a record of the running run. On
    /// failure, dropping this value still stops the run.
    pub async fn hand_over(&mut self) -> Result<(), StoreError> {
        if !self.is_handed_over {
            self.runs.write_down(&self.run.0).await?;
            self.is_handed_over = true;
        }
        Ok(())
    }
}

impl Drop for StartedRun {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.stop(Stop::Cancelled);
        }
    }
}
