//! Runs in progress: what is known about one, and the handles that others hold.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use wire::Stream;

use super::log::{LogPart, LogRange, RunLog, part};
use super::news::{Followers, RunNews};
use super::{FinishedRun, RunId, Runs};
use crate::conversation::{Listener, RunEvent, Stop};
use crate::store::{NewRun, StoreError};

/// One run of this server.
pub(crate) struct Entry {
    pub(super) run: NewRun,
    log: Mutex<RunLog>,
    stop: Mutex<Option<oneshot::Sender<Stop>>>,
    finished: watch::Sender<Option<Arc<FinishedRun>>>,
    /// How much it wrote.
    written: watch::Sender<u64>,
    followers: Followers,
    /// Somebody may ask for it later, whatever becomes of it.
    pub(super) wants_row: AtomicBool,
    pub(super) abort: OnceLock<AbortHandle>,
}

impl Entry {
    pub(super) fn new(run: NewRun, stop: oneshot::Sender<Stop>) -> Self {
        Self {
            run,
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

    fn write(&self, stream: Stream, data: &[u8]) {
        let mut log = self.log();
        log.append(stream, data);
        self.written.send_replace(log.end().both);
        drop(log);
        self.followers.tell(stream, data);
    }

    pub(super) fn stop(&self, why: Stop) {
        let sender = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // A run that ended meanwhile needs no stopping.
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

    /// What memory has of the range, with how much there is; nothing when the store has its beginning.
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
                    // The sender lives in the registry and says how it ended before it goes.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Carries the output of a run into its log, and to those who follow it.
pub(super) struct EntryListener(pub(super) Arc<Entry>);

impl Listener for EntryListener {
    fn hear(&mut self, event: &RunEvent) {
        let RunEvent::Output { stream, data } = event;
        self.0.write(*stream, data);
    }
}

/// A run that goes on, in anybody's hands; dropping it changes nothing.
#[derive(Clone)]
pub struct LiveRun(pub(super) Arc<Entry>);

impl LiveRun {
    /// Its handle.
    pub fn id(&self) -> &RunId {
        &self.0.run.id
    }

    /// Its language, as asked for.
    pub fn language(&self) -> &str {
        &self.0.run.language
    }

    /// When it was asked for, in milliseconds since the epoch.
    pub fn created_ms(&self) -> u64 {
        self.0.run.created_ms
    }

    /// How it ended; nothing when it goes on for longer than `patience`.
    pub async fn wait(&self, patience: Duration) -> Option<Arc<FinishedRun>> {
        tokio::time::timeout(patience, self.0.wait()).await.ok()
    }

    /// How it ended, whenever that is. Safe to drop; borrows nothing.
    pub fn finished(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        self.0.wait()
    }

    /// Ends it; only the first call counts.
    pub fn stop(&self, why: Stop) {
        self.0.stop(why);
    }

    /// What it writes from now on; see [`Runs::log`] for what it wrote before.
    pub fn follow(&self) -> RunNews {
        let news = self.0.followers.add();
        if self.0.peek().is_some() {
            // It ended before this one was among those who are told.
            self.0.followers.end();
        }
        news
    }

    /// How many bytes it wrote, changing as it writes; [`Runs::log`] has them.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.written.subscribe()
    }
}

/// A run just started. Dropping it before it was handed over stops the run.
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

    /// The same run without the duty to end it.
    pub fn live(&self) -> LiveRun {
        self.run.clone()
    }

    /// How it ended, whenever that is. Safe to drop; borrows nothing.
    pub fn finished(&self) -> impl Future<Output = Arc<FinishedRun>> + Send + use<> {
        self.run.finished()
    }

    /// Ends it; only the first call counts.
    pub fn stop(&self, why: Stop) {
        self.run.stop(why);
    }

    /// Lets the run go on without its caller. That it runs is on the disk when this succeeds; when it fails, the
    /// run still ends with this value.
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
