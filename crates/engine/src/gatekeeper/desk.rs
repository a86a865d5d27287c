//! Work with a database of the gate, which may have to wait for other servers and must not hold up the runtime.
//!
//! A short transaction is done where it is asked for, by a connection that never waits. If another transaction is in the
//! way, the work goes to a thread of its own, whose connection waits. Waking that thread costs more than the work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};

use super::database::Database;
use crate::store::StoreError;

/// Work that may wait.
const JOBS_MAX: usize = 1024;
/// After so many transactions on the spot, the thread moves the log into the database, which may need a sync.
const CHECKPOINT_EVERY: u32 = 500;

type Job<D> = Box<dyn FnOnce(&D) + Send>;

/// Something in a database of the gate.
pub(crate) trait Kept: Send + Sync + 'static {
    fn database(&self) -> &Database;
}

/// An error of work with a database.
pub(crate) trait WorkError: From<StoreError> + Send + 'static {
    /// Whether another transaction was in the way. Nothing has happened then.
    fn is_busy(&self) -> bool;
}

impl WorkError for StoreError {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

/// A database with its thread, which the first work starts.
pub(crate) struct Desk<D> {
    patient: Arc<D>,
    /// For work on the spot.
    hasty: Option<Arc<D>>,
    done_on_the_spot: AtomicU32,
    jobs: OnceLock<Option<mpsc::Sender<Job<D>>>>,
}

impl<D> std::fmt::Debug for Desk<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl<D: Kept> Desk<D> {
    /// All work goes to the thread.
    pub(crate) fn new(patient: D) -> Self {
        Self {
            patient: Arc::new(patient),
            hasty: None,
            done_on_the_spot: AtomicU32::new(0),
            jobs: OnceLock::new(),
        }
    }

    /// Work is done on the spot if nothing is in the way.
    pub(crate) fn with_hasty(patient: D, hasty: D) -> Self {
        Self { hasty: Some(Arc::new(hasty)), ..Self::new(patient) }
    }

    pub(crate) fn kept(&self) -> &D {
        &self.patient
    }

    /// Does work. On the thread, it is done even if this future is dropped; its answer is dropped then.
    pub(crate) async fn ask<T, E>(
        &self,
        work: impl FnOnce(&D) -> Result<T, E> + Clone + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: WorkError,
    {
        if let Some(hasty) = self.hasty.as_ref().filter(|hasty| hasty.database().is_open()) {
            let answer = work.clone()(hasty);
            if !answer.as_ref().is_err_and(WorkError::is_busy) {
                self.note_work_on_the_spot();
                return answer;
            }
        }
        let (answer, answered) = oneshot::channel();
        let job: Job<D> = Box::new(move |kept| {
            // The caller may be gone.
            drop(answer.send(work(kept)));
        });
        let jobs = self.jobs().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }

    /// Does work without waiting for it. If too much work waits, it is left out.
    pub(crate) fn nudge(&self, work: impl FnOnce(&D) + Send + 'static) {
        if let Some(jobs) = self.jobs() {
            drop(jobs.try_send(Box::new(work)));
        }
    }

    fn note_work_on_the_spot(&self) {
        if self.done_on_the_spot.fetch_add(1, Ordering::Relaxed) % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            self.nudge(|kept| {
                if let Err(error) = kept.database().checkpoint() {
                    tracing::debug!(reason = %error, "ledger_not_checkpointed");
                }
            });
        }
    }

    fn jobs(&self) -> Option<&mpsc::Sender<Job<D>>> {
        self.jobs.get_or_init(|| start(Arc::clone(&self.patient), self.hasty.clone())).as_ref()
    }
}

fn start<D: Kept>(patient: Arc<D>, hasty: Option<Arc<D>>) -> Option<mpsc::Sender<Job<D>>> {
    let (sender, mut jobs) = mpsc::channel::<Job<D>>(JOBS_MAX);
    let work = move || {
        while let Some(job) = jobs.blocking_recv() {
            job(&patient);
            // Opening may need a sync, so it is done here.
            if let Some(hasty) = hasty.as_ref().filter(|hasty| !hasty.database().is_open())
                && let Err(error) = hasty.database().open()
            {
                tracing::debug!(reason = %error, "ledger_only_on_its_thread");
            }
        }
    };
    match std::thread::Builder::new().name("gate-database".to_owned()).spawn(work) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(reason = %error, "ledger_not_started");
            None
        }
    }
}
