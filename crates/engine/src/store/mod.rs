//! The store: runs, their logs and persistent sandboxes, in one SQLite database that outlives the server.
//!
//! One thread owns the database ([`keeper`]). Other tasks send it requests over a bounded queue and wait.
//! Acknowledged data is on the disk. Several servers may use one state directory at once ([`servers`]). The
//! store opens nothing before the first request, so that the start of a server does not wait for a disk.

mod across;
mod error;
mod keeper;
mod proof;
mod record;
mod retention;
mod rows;
mod sandboxes;
mod schema;
mod servers;
mod write_ahead;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use sandbox::{FailureKind, Failures};
use tokio::sync::{Semaphore, oneshot};

pub(crate) use self::proof::proof_of;
pub use error::StoreError;
pub use retention::{Purged, Retention};
pub(crate) use rows::{NewRun, StoredRun};
pub(crate) use sandboxes::{Opened, SandboxUse};
pub(crate) use schema::KNOWN as LAYOUT;
pub(crate) use servers::Servers;
pub(crate) use write_ahead::write_ahead;

use self::keeper::{Answer, Database, Health, Kind, Request};
use crate::Principal;
use crate::display::Display;
use crate::runs::{FinishedRun, ListedRun, LogBlock, LogPart, LogRange, RunId};

/// The queue is counted in units of this size. A request takes at least one, and one for each further unit of
/// its data.
const PIECE_BYTES: usize = 64 << 10;
/// The most units in the queue: with the data, at most 32 MiB. One larger request goes alone.
const QUEUE_PIECES_MAX: u32 = 512;

/// The subject under which a run that could not be stored is reported.
const A_RUN: &str = "run";

/// The built-in limit of the file: a multiple of the retained size, in case purging lags behind.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The location of the store and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The state directory. The store is in its folder `store`.
    pub state_dir: PathBuf,
    /// What is retained.
    pub retention: Retention,
    /// The file never grows beyond this. Data that does not fit is answered like a full disk.
    pub file_bytes_max: u64,
}

impl StoreConfig {
    /// A configuration with the built-in limits.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), retention: Retention::default(), file_bytes_max: FILE_BYTES_MAX }
    }

    fn folder(&self) -> PathBuf {
        self.state_dir.join("store")
    }
}

/// The version of the SQLite library that is linked in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// A handle to the store. Clones refer to the same store.
#[derive(Clone)]
pub struct Store {
    requests: SyncSender<Request>,
    room: Arc<Semaphore>,
    health: Arc<Health>,
}

impl Store {
    /// Creates a store that opens its database with the first request. Its thread ends when the last clone is
    /// dropped.
    pub fn new(config: StoreConfig) -> Self {
        let (requests, waiting) = sync_channel(QUEUE_PIECES_MAX as usize);
        let health = Arc::new(Health::default());
        let seen = Arc::clone(&health);
        let thread = std::thread::Builder::new().name("palisade-store".to_owned());
        // Without a thread the queue has no receiver, and every request is answered with `Closed`.
        if let Err(error) = thread.spawn(move || keeper::keep(&waiting, config, &seen)) {
            tracing::error!(reason = %error, "store_not_started");
        }
        Self { requests, room: Arc::new(Semaphore::new(QUEUE_PIECES_MAX as usize)), health }
    }

    /// Opens the database if it is not open, for a server that must not start without it.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.ask(Kind::Read, 0, |_| Ok(())).await
    }

    /// Waits until every earlier request is on the disk, or has failed.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.ask(Kind::Write, 0, |_| Ok(())).await
    }

    /// The last error, unless an operation has succeeded since.
    pub fn error(&self) -> Option<StoreError> {
        self.health.error()
    }

    /// The failures that no caller was told about.
    pub fn failures(&self) -> &Failures {
        self.health.failures()
    }

    /// Reports a run that was not stored, unless the store's thread reports the failure.
    pub(crate) fn tell(&self, error: &StoreError) {
        if !error.is_lasting() {
            self.failures().report(FailureKind::Store, A_RUN, error);
        }
    }

    pub(crate) fn tell_recovered(&self) {
        self.failures().recovered(FailureKind::Store, A_RUN);
    }

    /// Performs one step of purging now. The store also purges by itself.
    pub async fn purge(&self, retention: Retention) -> Result<Purged, StoreError> {
        self.ask(Kind::Read, 0, move |database| retention::step(&database.connection, &retention)).await
    }

    pub(crate) async fn begin(&self, run: NewRun) -> Result<(), StoreError> {
        self.ask(Kind::Write, 0, move |database| rows::begin(database, &run)).await
    }

    pub(crate) async fn append(&self, id: RunId, blocks: Vec<Arc<LogBlock>>) -> Result<(), StoreError> {
        self.ask(Kind::Write, weight(&blocks), move |database| rows::append(database, &id, &blocks)).await
    }

    /// Stores a finished run. Returns as soon as the request is in the queue. The returned receiver reports
    /// when the run is on the disk.
    pub(crate) async fn finish(
        &self,
        run: Arc<FinishedRun>,
        blocks: Vec<Arc<LogBlock>>,
        is_awaited: bool,
    ) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        let kind = if is_awaited { Kind::Write } else { Kind::WriteLater };
        let files: usize =
            run.result.execution().artifacts.iter().map(|artifact| artifact.content.len()).sum();
        let shown: usize = run.result.execution().displays.iter().map(Display::bytes).sum();
        let bytes = weight(&blocks) + files + shown;
        self.send(kind, bytes, move |database| rows::finish(database, &run, &blocks)).await
    }

    pub(crate) async fn find(
        &self,
        principal: &Principal,
        id: &RunId,
    ) -> Result<Option<StoredRun>, StoreError> {
        let (principal, id) = (principal.clone(), id.clone());
        self.ask(Kind::Read, 0, move |database| rows::find(database, &principal, &id)).await
    }

    pub(crate) async fn log(
        &self,
        principal: &Principal,
        id: &RunId,
        range: LogRange,
    ) -> Result<Option<LogPart>, StoreError> {
        let (principal, id) = (principal.clone(), id.clone());
        self.ask(Kind::Read, 0, move |database| rows::log(database, &principal, &id, range)).await
    }

    pub(crate) async fn list(
        &self,
        principal: &Principal,
        limit: usize,
    ) -> Result<Vec<ListedRun>, StoreError> {
        let principal = principal.clone();
        self.ask(Kind::Read, 0, move |database| rows::list(database, &principal, limit)).await
    }

    pub(crate) async fn close_own_runs(&self) -> Result<(), StoreError> {
        self.ask(Kind::Write, 0, rows::close_own_runs).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        bytes: usize,
        work: impl FnOnce(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answered = self.send(kind, bytes, work).await?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits for room in the queue only.
    async fn send<T: Send + 'static>(
        &self,
        kind: Kind,
        bytes: usize,
        work: impl FnOnce(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        let room = Arc::clone(&self.room).acquire_many_owned(pieces.min(QUEUE_PIECES_MAX)).await;
        let room = room.map_err(|_| StoreError::Closed)?;
        let (answer, answered) = oneshot::channel();
        let work = Box::new(move |database: Result<&Database, StoreError>| {
            let done = database.and_then(|database| work(database).map_err(StoreError::sql("work")));
            let failed = done.as_ref().err().cloned();
            // The requester may be gone.
            let tell: Answer = Box::new(move |committed: Result<(), StoreError>| {
                answer.send(committed.and(done)).ok();
            });
            (failed, tell)
        });
        // The permit was taken above, so the queue is never full. It is closed only when its thread has ended.
        self.requests.try_send(Request { kind, work, room }).map_err(|_| StoreError::Closed)?;
        Ok(answered)
    }
}

fn weight(blocks: &[Arc<LogBlock>]) -> usize {
    blocks.iter().map(|block| block.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::DisplayKind;
    use crate::result::{Artifact, Execution, RunError, RunResult, RunUsage, Value};
    use crate::runs::RunLog;
    use policy::Clamp;
    use sandbox::{Guarantee, Mechanism, Outcome};
    use wire::{Exit, Stream};

    /// A run with every field set.
    fn rich() -> FinishedRun {
        let error = RunError { line: Some(3), retryable: true, ..RunError::new("failed", "é").remedy("r") };
        let mut execution = Execution { exit: Some(Exit::Signal(9)), ..Execution::default() };
        let json = serde_json::from_str("[123456789012345678901234567890, 0.1]").unwrap();
        execution.value = Some(Value { repr: "v".to_owned(), json: Some(json), mime: Some("m".to_owned()) });
        let file = |path: &str, content: &[u8]| Artifact { path: path.to_owned(), content: content.to_vec() };
        execution.artifacts = vec![file("b", &[0, 255]), file("a", b"")];
        execution.usage = RunUsage { wall_ms: 0.1 + 0.2, memory_peak_bytes: u64::MAX, ..RunUsage::default() };
        execution.enforced.keep(Guarantee::NetworkNone, &[Mechanism::Namespace]);
        execution.enforced.keep_with_note(Guarantee::DiskLimited, &[Mechanism::Tmpfs], "a note");
        execution.enforced.lack(Guarantee::CpuLimited, "a reason");
        (execution.stdout, execution.stderr) = (b"o1".to_vec(), "eé".as_bytes().to_vec());
        let display = |kind, data: &[u8], json: Option<&str>| Display {
            kind,
            data: data.to_vec(),
            text: "words".to_owned(),
            json: json.map(str::to_owned),
        };
        execution.displays = vec![
            display(DisplayKind::Png, b"\x89PNG\0\xff", Some("{}")),
            display(DisplayKind::Html, b"<b>x</b>", None),
        ];
        let mut result = RunResult::finished(Outcome::Failed, "fake", execution);
        result.error = Some(error);
        result.clamped = vec![Clamp { limit: "cpus".to_owned(), asked: 99.5, given: 2.0 }];
        result.warnings = vec!["careful".to_owned()];
        FinishedRun {
            id: RunId::random().unwrap(),
            principal: Principal::local(),
            language: "python".to_owned(),
            created_ms: 1,
            ended_ms: 2,
            result,
            proof: None,
        }
    }

    #[tokio::test]
    async fn a_record_comes_back_with_everything_it_had() {
        let folder = std::env::temp_dir().join(format!("palisade-record-{}", std::process::id()));
        let store = Store::new(StoreConfig::new(&folder));
        let mut log = RunLog::default();
        let run = rich();
        for (stream, data) in [(Stream::Stderr, "e"), (Stream::Stdout, "o1"), (Stream::Stderr, "é")] {
            log.append(stream, data.as_bytes());
        }
        let run = Arc::new(run);
        // Twice, as when the first answer was lost.
        for _ in 0..2 {
            let answered = store.finish(Arc::clone(&run), log.seal(), true).await.unwrap();
            answered.await.unwrap().unwrap();
        }
        let found = store.find(&run.principal, &run.id).await.unwrap();
        let Some(StoredRun::Finished(found)) = found else { panic!("it is there") };
        assert_eq!(format!("{found:?}"), format!("{run:?}"));
        std::fs::remove_dir_all(&folder).ok();
    }
}
