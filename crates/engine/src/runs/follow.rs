//! The task of one run: executes it, writes its output to the log and its end to the store. [`Runs::start`]
//! spawns it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::Outcome;
use tokio::sync::{mpsc, oneshot};
use wire::Stream;

use super::live::{Entry, EntryListener};
use super::log::LogBlock;
use super::{Durability, FinishedRun, RunSlot, Runs, install};
use crate::Caller;
use crate::audit::RunInputs;
use crate::clock;
use crate::conversation::{Audience, RunEvent, Stop, StopSignals};
use crate::gatekeeper::outcome_of;
use crate::request::RunRequest;
use crate::result::{Execution, RunError, RunPhase, RunResult};
use crate::sandboxes::Ties;
use crate::store::StoreError;
use crate::telemetry::Phase;

/// How often the output of a handed-over run is written to the store.
const FLUSH_PAUSE: Duration = Duration::from_secs(1);
/// How long a result waits for the store.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// How often, and after which pauses, a result is offered again to a store that did not take it.
const RETRIES_MAX: usize = 6;
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The inputs of a run's task.
pub(super) struct Beginning {
    pub(super) caller: Caller,
    pub(super) request: RunRequest,
    /// Receives the events as they arrive, if the caller is attached.
    pub(super) events: Option<mpsc::Sender<RunEvent>>,
    pub(super) stopped: oneshot::Receiver<Stop>,
    pub(super) place: RunSlot,
}

impl Runs {
    pub(super) async fn follow(self: Arc<Self>, entry: Arc<Entry>, beginning: Beginning) {
        let Beginning { caller, mut request, events, stopped, place } = beginning;
        let inputs = self.engine.gatekeeper().audit().inputs_of(&request);
        let _last_word = PublishOnDrop { runs: &self, entry: &entry };
        // Counted until the run really ended, whether or not its caller waits for it.
        let lease = match self.engine.gatekeeper().lease_run(&caller).await {
            Ok(lease) => lease,
            Err(error) => {
                let result = RunResult::not_started(outcome_of(&error), self.engine.backend().name(), error);
                return self.conclude(&entry, (result, inputs), place).await;
            }
        };
        if !request.access.is_empty() {
            request.run_id = Some(entry.run.id.as_str().to_owned());
        }
        let told = install::progress_of(&mut request);
        let mut audience = Audience::listener(Box::new(EntryListener(Arc::clone(&entry)))).with_pipe(events);
        let work = async {
            match request.sandbox.is_some() {
                true => {
                    let ties = Ties { audience, stop: stopped };
                    self.sandboxes.run(&caller, request, ties).await
                }
                false => {
                    let stops = StopSignals::new(stopped);
                    self.engine.run_in((&caller, None), request, &mut audience, stops).await
                }
            }
        };
        let result = lease.during(install::with_progress(work, told, &entry)).await;
        lease.end_with(&result);
        self.conclude(&entry, (result, inputs), place).await;
    }

    /// Stores the result, publishes it, and removes the run from memory once the store has it.
    pub(super) async fn conclude(
        &self,
        entry: &Entry,
        (result, inputs): (RunResult, Option<RunInputs>),
        place: RunSlot,
    ) {
        let blocks = {
            let mut log = entry.log();
            log.complete(Stream::Stdout, &result.execution().stdout);
            log.complete(Stream::Stderr, &result.execution().stderr);
            log.seal()
        };
        if result.installed.is_none() {
            self.telemetry.count_run(&entry.run.language, &result);
        }
        let span = tracing::Span::current();
        span.record("outcome", result.outcome.name());
        span.record("error", result.error.as_ref().map(|error| error.code.as_str()));
        // Nothing was executed, so there is nothing to look up later, unless a caller was told that the run is
        // kept.
        let is_unstarted = matches!(result.phase, RunPhase::NotStarted);
        let Execution { stdout, stderr, .. } = result.execution();
        let is_long = stdout.len().max(stderr.len()) > self.config.inline_bytes_max;
        let is_awaited = is_long || entry.wants_row() || self.config.durability == Durability::BeforeReply;
        let mut run = finished(entry, result);
        if let Some(inputs) = inputs {
            run.proof = self.engine.gatekeeper().audit().prove(&run, inputs).map(Arc::new);
        }
        let run = Arc::new(run);
        if is_unstarted && !entry.wants_row() {
            entry.publish(run);
            // A caller that asks for the run to be kept from now on sees that it ended and stores it: see
            // `write_down`.
            if !entry.wants_row() {
                return self.forget(entry);
            }
            return self.keep_anyway(entry).await;
        }
        let started = Instant::now();
        let queued = within(self.store.finish(Arc::clone(&run), blocks.clone(), is_awaited)).await;
        // The next run may start while this one is written: the queue in front of the store is bounded.
        drop(place);
        let stored = match queued {
            Ok(answered) if is_awaited => {
                within(async { answered.await.unwrap_or(Err(StoreError::Closed)) }).await
            }
            Ok(answered) => {
                let known = self.store.error();
                entry.publish(known.map_or_else(|| Arc::clone(&run), |error| warned(&run, &error)));
                answered.await.unwrap_or(Err(StoreError::Closed))
            }
            Err(error) => Err(error),
        };
        match stored {
            Ok(()) => {
                self.store.tell_recovered();
                self.telemetry
                    .time(Phase::Store, u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
                entry.publish(Arc::clone(&run));
            }
            Err(error) => {
                self.telemetry.count_store_failure();
                self.store.tell(&error);
                entry.publish(warned(&run, &error));
                self.offer_again(entry, &run, &blocks).await;
            }
        }
        entry.log().forget(&blocks);
        self.forget(entry);
    }

    /// Stores a run that never began, when a caller asked to keep it in the moment in which its end was
    /// published.
    async fn keep_anyway(&self, entry: &Entry) {
        if let Some(run) = entry.peek()
            && let Err(error) = self.store_end(run, Vec::new()).await
        {
            self.telemetry.count_store_failure();
            self.store.tell(&error);
        }
        self.forget(entry);
    }

    /// Stores a result and waits until it is on the disk. Repeating it changes nothing.
    async fn store_end(&self, run: Arc<FinishedRun>, blocks: Vec<Arc<LogBlock>>) -> Result<(), StoreError> {
        let answered = within(self.store.finish(run, blocks, true)).await?;
        within(async { answered.await.unwrap_or(Err(StoreError::Closed)) }).await
    }

    /// Keeps a result that the store did not take, and offers it again.
    async fn offer_again(&self, entry: &Entry, run: &Arc<FinishedRun>, blocks: &[Arc<LogBlock>]) {
        self.note_unstored(entry);
        let mut closing = self.closing.subscribe();
        for _ in 0..RETRIES_MAX {
            tokio::select! {
                () = tokio::time::sleep(RETRY_PAUSE) => {}
                // A server that shuts down does not wait for a broken disk; it tries one last time.
                _ = closing.wait_for(|is_closing| *is_closing) => {}
            }
            if !self.is_known(entry) {
                return;
            }
            let stored = self.store_end(Arc::clone(run), blocks.to_vec()).await;
            if stored.is_ok() || *closing.borrow() {
                return;
            }
        }
    }

    /// Records a run that outlives its request as running, and appends its output as it arrives.
    pub(super) async fn write_down(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<(), StoreError> {
        entry.wants_row.store(true, std::sync::atomic::Ordering::SeqCst);
        within(self.store.begin(entry.run.clone())).await?;
        if let Some(run) = entry.peek() {
            // The run ended before a caller asked to keep it.
            let blocks = entry.log().seal();
            return self.store_end(run, blocks).await;
        }
        tokio::spawn(Arc::clone(self).write_along(Arc::clone(entry)));
        Ok(())
    }

    /// Appends output to the store until the run ends. The result brings the rest.
    async fn write_along(self: Arc<Self>, entry: Arc<Entry>) {
        let run = super::LiveRun(Arc::clone(&entry));
        while run.wait(FLUSH_PAUSE).await.is_none() {
            if entry.log().unstored_bytes() == 0 {
                continue;
            }
            let blocks = entry.log().seal();
            // Output that cannot be written now stays in memory, bounded by the run's output limit.
            if self.store.append(entry.run.id.clone(), blocks.clone()).await.is_ok() {
                entry.log().forget(&blocks);
            }
        }
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = || Err(StoreError::Busy(format!("no answer within {} s", STORE_PATIENCE.as_secs())));
    tokio::time::timeout(STORE_PATIENCE, asked).await.unwrap_or_else(|_| late())
}

fn finished(entry: &Entry, result: RunResult) -> FinishedRun {
    FinishedRun {
        id: entry.run.id.clone(),
        principal: entry.run.principal.clone(),
        language: entry.run.language.clone(),
        created_ms: entry.run.created_ms,
        ended_ms: clock::unix_ms(),
        result,
        proof: None,
    }
}

/// The same result with a warning about the store.
fn warned(run: &FinishedRun, error: &StoreError) -> Arc<FinishedRun> {
    let mut run = run.clone();
    let error = error.to_run_error();
    let warning = format!("{}, so this run cannot be looked up later ({})", error.message, error.code);
    run.result.warnings.push(warning);
    Arc::new(run)
}

/// Ensures that waiters get a result, whatever happens to the task.
pub(super) struct PublishOnDrop<'a> {
    pub(super) runs: &'a Runs,
    pub(super) entry: &'a Entry,
}

impl Drop for PublishOnDrop<'_> {
    fn drop(&mut self) {
        if self.entry.peek().is_none() {
            let error = RunError::new("killed", "the run was ended by a shutdown");
            let result = RunResult::not_started(Outcome::Killed, "none", error);
            self.entry.publish(Arc::new(finished(self.entry, result)));
            self.runs.forget(self.entry);
        }
    }
}
