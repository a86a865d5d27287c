//! The thread that owns the database: takes the waiting requests, commits them in one transaction, then
//! answers.
//!
//! ```text
//! callers -> bounded queue -> batch -> reads -> one transaction of writes -> commit (on the disk) -> answers
//!                               ^                                              |
//!                               +------------ upkeep, in small steps <---------+
//! ```
//! The thread opens nothing before the first request. If the database cannot be opened or fails, the thread
//! opens it again after a pause. In the meantime every request gets the error at once.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use sandbox::{FailureKind, Failures};
use tokio::sync::OwnedSemaphorePermit;

use super::error::StoreError;
use super::servers::{Servers, is_same};
use super::{StoreConfig, retention, rows, schema};

/// The most requests answered together.
const BATCH_MAX: usize = 256;
/// How long a deferrable write waits for further requests.
const LATER: Duration = Duration::from_millis(40);
/// The pause before a failed database is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(2);
/// The pause between two purges. The next constant is the pause while there is more to purge.
const UPKEEP_PAUSE: Duration = Duration::from_secs(60);
const UPKEEP_STEP_PAUSE: Duration = Duration::from_millis(50);

/// What a request does to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only reads.
    Read,
    /// It writes, and the requester waits until the data is on the disk.
    Write,
    /// It writes, and the requester does not wait.
    WriteLater,
}

/// The state that requests work on.
pub(super) struct Database {
    pub(super) connection: Connection,
    pub(super) servers: Arc<Servers>,
}

/// Receives the outcome of the transaction.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Performs the request, and returns whether it failed.
pub(super) type Work = Box<dyn FnOnce(Result<&Database, StoreError>) -> (Option<StoreError>, Answer) + Send>;

/// One request.
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) work: Work,
    /// Its permit in the queue, released after the answer.
    pub(super) room: OwnedSemaphorePermit,
}

/// The health of the store, for other threads to read.
#[derive(Debug, Default)]
pub(super) struct Health {
    error: Mutex<Option<StoreError>>,
    failures: Failures,
}

/// The subject under which failures of the database are reported.
const SUBJECT: &str = "database";

impl Health {
    pub(super) fn error(&self) -> Option<StoreError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }

    fn set(&self, error: Option<StoreError>) {
        match &error {
            Some(error) => {
                let (reason, cause) = (error.to_string(), error.code());
                self.failures.report_text(FailureKind::Store, SUBJECT, &reason, Some(cause));
            }
            None => self.failures.recovered(FailureKind::Store, SUBJECT),
        }
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// Serves requests until no requester is left.
pub(super) fn keep(requests: &Receiver<Request>, config: StoreConfig, health: &Health) {
    let Ok(mut next) = requests.recv() else { return };
    let mut keeper = Keeper::new(config, health);
    loop {
        keeper.serve(gather(requests, next));
        next = loop {
            match requests.recv_timeout(keeper.upkeep_due.saturating_duration_since(Instant::now())) {
                Ok(request) => break request,
                Err(RecvTimeoutError::Timeout) => keeper.upkeep(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        };
        // Under load there is no idle time, but old runs must still be purged.
        if keeper.upkeep_due <= Instant::now() {
            keeper.upkeep();
        }
    }
}

/// Collects everything that waits. If no requester waits for an answer, also collects what arrives a little
/// later.
fn gather(requests: &Receiver<Request>, first: Request) -> Vec<Request> {
    let deadline = Instant::now() + LATER;
    let mut is_awaited = first.kind != Kind::WriteLater;
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX {
        let patience = if is_awaited { Duration::ZERO } else { deadline - Instant::now().min(deadline) };
        let Ok(request) = requests.recv_timeout(patience) else { break };
        is_awaited |= request.kind != Kind::WriteLater;
        batch.push(request);
    }
    batch
}

struct Keeper<'a> {
    config: StoreConfig,
    health: &'a Health,
    state: State,
    servers: Option<Arc<Servers>>,
    /// Whether a failure requires an examination of every page.
    is_suspect: bool,
    upkeep_due: Instant,
}

enum State {
    Closed,
    /// The open database, with its file, to notice when another file takes its name.
    Open(Database, File),
    Broken(StoreError, Instant),
}

impl<'a> Keeper<'a> {
    fn new(config: StoreConfig, health: &'a Health) -> Self {
        let upkeep_due = Instant::now() + UPKEEP_STEP_PAUSE;
        Self { config, health, state: State::Closed, servers: None, is_suspect: false, upkeep_due }
    }

    fn serve(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.ensure_open().and_then(|()| self.ensure_known()) {
            for request in batch {
                fail(request, &error);
            }
            return;
        }
        let State::Open(database, _) = &self.state else { return };
        let (reads, writes): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|request| request.kind == Kind::Read);
        let mut failure = None;
        for request in reads {
            let (failed, answer) = (request.work)(Ok(database));
            failure = failure.or(failed.filter(StoreError::spoils_connection));
            answer(Ok(()));
            drop(request.room);
        }
        let settled = (!writes.is_empty()).then(|| commit(database, writes));
        if let Some(settled) = &settled {
            failure = settled.lasting.clone().or(failure);
            if failure.is_none() {
                self.health.set(None);
            }
        }
        self.note(failure);
        // The health is updated before the answers, so that a requester finds it consistent with its answer.
        if let Some(Settled { outcome, answers, .. }) = settled {
            for (answer, room) in answers {
                answer(outcome.clone());
                drop(room);
            }
        }
    }

    fn note(&mut self, failure: Option<StoreError>) {
        let Some(error) = failure else { return };
        self.health.set(Some(error.clone()));
        self.is_suspect |= matches!(error, StoreError::Corrupt(_));
        if error.spoils_connection() {
            self.state = State::Broken(error, Instant::now() + REOPEN_PAUSE);
        }
    }

    fn ensure_open(&mut self) -> Result<(), StoreError> {
        match &self.state {
            // An operator moved the file aside: anything written to it now would be lost.
            State::Open(_, file) if is_same(file, &self.config.folder().join(schema::FILE)) => return Ok(()),
            State::Broken(error, until) if Instant::now() < *until => return Err(error.clone()),
            _ => {}
        }
        self.state = State::Closed;
        match self.open() {
            Ok((database, file)) => {
                self.is_suspect = false;
                self.health.set(None);
                self.state = State::Open(database, file);
                Ok(())
            }
            Err(error) => {
                self.is_suspect |= matches!(error, StoreError::Corrupt(_));
                self.health.set(Some(error.clone()));
                self.state = State::Broken(error.clone(), Instant::now() + REOPEN_PAUSE);
                Err(error)
            }
        }
    }

    /// Stops the use of a database that a newer server has migrated in the meantime. Writes check again within
    /// their transaction.
    fn ensure_known(&mut self) -> Result<(), StoreError> {
        let State::Open(database, _) = &self.state else { return Ok(()) };
        let checked = schema::check_layout(&database.connection).map(drop);
        self.note(checked.clone().err());
        checked
    }

    fn open(&mut self) -> Result<(Database, File), StoreError> {
        let folder = self.config.folder();
        let connection = schema::open(&self.config, self.is_suspect)?;
        let servers = match &self.servers {
            Some(servers) => Arc::clone(servers),
            None => {
                let joined = Servers::join(&folder.join("servers")).map_err(StoreError::io("join"))?;
                Arc::clone(self.servers.insert(Arc::new(joined)))
            }
        };
        let file = File::open(folder.join(schema::FILE)).map_err(StoreError::io("open"))?;
        let database = Database { connection, servers };
        rows::close_runs_of_the_dead(&database).map_err(StoreError::sql("close runs of dead servers"))?;
        database.servers.sweep();
        Ok((database, file))
    }

    /// One small step of purging runs that are too old or too many.
    fn upkeep(&mut self) {
        let mut pause = UPKEEP_PAUSE;
        let mut failure = None;
        if let State::Open(database, _) = &self.state {
            match retention::step(&database.connection, &self.config.retention) {
                Ok(purged) if purged.is_more => pause = UPKEEP_STEP_PAUSE,
                Ok(_) => {}
                Err(error) => failure = Some(StoreError::sql("purge")(error)),
            }
        }
        self.note(failure);
        self.upkeep_due = Instant::now() + pause;
    }
}

fn fail(request: Request, error: &StoreError) {
    let (_, answer) = (request.work)(Err(error.clone()));
    answer(Ok(()));
}

/// The outcome of a transaction, before any requester is answered.
struct Settled {
    outcome: Result<(), StoreError>,
    /// An error that other requests will meet as well.
    lasting: Option<StoreError>,
    answers: Vec<(Answer, OwnedSemaphorePermit)>,
}

/// Executes all writes in one transaction. A failed write rolls back only its own changes.
fn commit(database: &Database, writes: Vec<Request>) -> Settled {
    let connection = &database.connection;
    let begun = connection.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::sql("begin"));
    let mut outcome = begun.and_then(|()| schema::check_layout(connection).map(drop));
    let mut answers = Vec::with_capacity(writes.len());
    let mut lasting = None;
    for request in writes {
        let given = match &outcome {
            Ok(()) => connection.execute_batch("SAVEPOINT one").map_err(StoreError::sql("begin")),
            Err(error) => Err(error.clone()),
        };
        let may_work = given.is_ok();
        let (failed, answer) = (request.work)(given.map(|()| database));
        answers.push((answer, request.room));
        if !may_work {
            continue;
        }
        let back = if failed.is_some() { "ROLLBACK TO one; RELEASE one" } else { "RELEASE one" };
        let settled = connection.execute_batch(back).map_err(StoreError::sql("write"));
        // A full disk rolls back the whole transaction at once: https://sqlite.org/lang_transaction.html.
        if connection.is_autocommit() || settled.is_err() {
            outcome = Err(failed.clone().or(settled.err()).unwrap_or(StoreError::Closed));
        }
        lasting = failed.filter(StoreError::is_lasting).or(lasting);
    }
    if outcome.is_ok() {
        outcome = connection.execute_batch("COMMIT").map_err(StoreError::sql("commit"));
    }
    if outcome.is_err() && !connection.is_autocommit() {
        // Nothing was acknowledged yet. If the rollback fails too, the next opening finds out.
        connection.execute_batch("ROLLBACK").ok();
    }
    lasting = lasting.or(outcome.clone().err());
    Settled { outcome, lasting, answers }
}
